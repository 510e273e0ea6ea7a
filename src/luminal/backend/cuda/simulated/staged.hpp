// What is under way: copies into shared memory, and products of tiles that lie there.
// A copy is done as late as it may be: when a wait ends.
template <class T> inline void copy_16(buffer<T> to, buffer<T> from, int count) {
  using namespace simulator;
  Copies& all = copies[current];
  long long size = sizeof(T);
  if (to.count * size < 16 || from.count * size < count) fail("copies 16 bytes beyond the end");
  if ((uintptr_t)to.data % 16 || (uintptr_t)from.data % 16) fail("copies 16 bytes that begin in between");
  if (all.count == all.room) all.made = (Copy*)realloc(all.made, (all.room = 2 * all.room + 8) * sizeof(Copy));
  for (int e = 0; e < 16 / size && to.shadows; e++) writes(to.shadows + e), to.shadows[e].copies++;  // it may be done at once
  all.made[all.count++] = {(char*)to.data, (char*)from.data, to.shadows, count, 16 / (int)size, all.group};
}
inline void copies_commit() { simulator::copies[simulator::current].group++; }
template <int N> inline void copies_wait() {
  using namespace simulator;
  Copies& all = copies[current];
  int left = 0;
  for (int n = 0; n < all.count; n++) {
    Copy copy = all.made[n];
    if (copy.group >= all.group - N) { all.made[left++] = copy; continue; }
    memcpy(copy.to, copy.from, copy.bytes);
    memset(copy.to + copy.bytes, 0, 16 - copy.bytes);
    for (int e = 0; e < copy.count && copy.shadows; e++) writes(copy.shadows + e), copy.shadows[e].copies--;
  }
  all.count = left;
  Products& mine = products[current];
  unfenced += !mine.waiting, mine.waiting = 1;
}
inline void copies_fence() {
  using namespace simulator;
  unfenced -= products[current].waiting, products[current].waiting = 0;
}

// ---- products of tiles: each thread's part is computed as late as it may be. Until then its sums
// are NaN that say of which product they are, and which of its sums.

namespace simulator {

inline float ticket(int product, int sum) { return same_bits<float>(0xFFD5A000u | product % PRODUCTS << 8 | sum); }
inline bool is_ticket(float sum) { return same_bits<unsigned>(sum) >> 13 == 0xFFD5A000u >> 13; }
inline float sum_of(float sum) {
  unsigned bits = same_bits<unsigned>(sum);
  if (!is_ticket(sum)) return sum;
  Product& it = products[current].made[bits >> 8 & (PRODUCTS - 1)];
  if (!it.done) fail("takes sums that are under way");
  return it.sums[bits & 255];
}

// Of a tile's elements a thread meets its share: all of them are met by a group.
inline void meets(const Staged& tile, int elements) {
  for (int n = current % GROUP; n < elements && tile.shadows; n += GROUP) reads(tile.shadows + n);
}
inline float of_tile(const Staged& tile, int row, int k, bool half) {
  unsigned short bits;
  memcpy(&bits, tile.bytes + 128 * row + 16 * (k / 8 ^ row % 8) + 2 * (k % 8), 2);
  return half ? F16::of(bits, 0) : BF16::of(bits, 0);
}

inline void multiply(Product& it) {
  meets(it.a, 64 * 64), meets(it.b, 64 * it.columns);
  int lane = current % LANES, first = current % GROUP / LANES * 16 + lane / 4;
  for (int n = 0; n < it.columns / 2; n++) it.sums[n] = sum_of(it.sums[n]);
  for (int k = 0; k < 64; k++) {
    float rows[2] = {of_tile(it.a, first, k, it.half), of_tile(it.a, first + 8, k, it.half)};
    for (int j = 0; j < it.columns / 8; j++)
      for (int e = 0; e < 2; e++) {
        int n = 8 * j + 2 * (lane % 4) + e;
        float b = it.turned ? of_tile(it.b, n / 64 * 64 + k, n % 64, it.half) : of_tile(it.b, n, k, it.half);
        for (int h = 0; h < 2; h++) it.sums[4 * j + 2 * h + e] += rows[h] * b;
      }
  }
  it.done = true;
}

inline void multiply_all_but(int last) {
  Products& mine = products[current];
  for (; mine.done < mine.count - last; mine.done++) multiply(mine.made[mine.done % PRODUCTS]);
}

template <int N> inline void product(float (&c)[N], buffer<unsigned short> a, buffer<unsigned short> b, bool half, bool turned = false) {
  Products& mine = products[current];
  if (!mine.made) mine.made = array<Product>(PRODUCTS);
  if (unfenced) fail("multiplies where copies have arrived without a fence");
  if (a.count < 64 * 64 || b.count < 128 * N) fail("multiplies beyond the end of a tile");
  if (((char*)a.data - shared_bytes) % 1024 || ((char*)b.data - shared_bytes) % 1024)
    fail("multiplies a tile that begins in between");
  if (mine.count - mine.done == PRODUCTS / 2) fail("has too many products under way");
  Product& it = mine.made[mine.count % PRODUCTS];
  it = {{}, {(char*)a.data, a.shadows}, {(char*)b.data, b.shadows}, 2 * N, half, turned, false};
  for (int n = 0; n < N; n++) {
    if (is_ticket(c[n]) && (same_bits<unsigned>(c[n]) & 255) != (unsigned)n) fail("moves sums that are under way");
    it.sums[n] = c[n], c[n] = ticket(mine.count, n);
  }
  meets(it.a, 64 * 64), meets(it.b, 128 * N);  // it may be done at once
  mine.count++;
}

}  // namespace simulator

// Of a tile of 64 rows with what the threads of a group have: done when it ends.
namespace simulator {

template <bool turned, class K> inline void rows(float (&c)[32], const unsigned (&a)[16], buffer<unsigned short> b) {
  if (unfenced) fail("multiplies where copies have arrived without a fence");
  if (b.count < 64 * 64) fail("multiplies beyond the end of a tile");
  if (((char*)b.data - shared_bytes) % 1024) fail("multiplies a tile that begins in between");
  meets({(char*)b.data, b.shadows}, 64 * 64);
  int lane = current % LANES, near = lane / 8 % 2, far = lane / 16;
  for (int k = 0; k < 4; k++)
    for (int n = 0; n < 4; n++) {
      int row = lane % 8 + (turned ? 16 * k + 8 * near : 16 * n + 8 * far);
      int block = turned ? 2 * n + far : 2 * k + near;
      unsigned first[4], r[4];
      memcpy(first, a + 4 * k, 16);
      ldmatrix<turned>(r, b + (64 * row + 8 * (block ^ row % 8)));
      for (int m = 0; m < 2; m++) {
        unsigned second[2] = {r[2 * m], r[2 * m + 1]};
        float sums[4];
        memcpy(sums, c + 8 * n + 4 * m, 16);
        mma<K>(sums, first, second);
        memcpy(c + 8 * n + 4 * m, sums, 16);
      }
    }
}

}  // namespace simulator

#define ROWS(name, kind) \
  inline void wgmma_##name##_rows(float (&c)[32], const unsigned (&a)[16], buffer<unsigned short> b, bool = false) { simulator::rows<false, simulator::kind>(c, a, b); } \
  inline void wgmma_##name##_rows_turned(float (&c)[32], const unsigned (&a)[16], buffer<unsigned short> b, bool = false) { simulator::rows<true, simulator::kind>(c, a, b); }
ROWS(bf16, BF16) ROWS(f16, F16)
#define STAGED(n) \
  inline void wgmma_bf16_##n(float (&c)[n / 2], buffer<unsigned short> a, buffer<unsigned short> b) { simulator::product(c, a, b, false); } \
  inline void wgmma_f16_##n(float (&c)[n / 2], buffer<unsigned short> a, buffer<unsigned short> b) { simulator::product(c, a, b, true); } \
  inline void wgmma_bf16_##n##_turned(float (&c)[n / 2], buffer<unsigned short> a, buffer<unsigned short> b) { simulator::product(c, a, b, false, true); } \
  inline void wgmma_f16_##n##_turned(float (&c)[n / 2], buffer<unsigned short> a, buffer<unsigned short> b) { simulator::product(c, a, b, true, true); }
STAGED(64) STAGED(128) STAGED(256)
template <int N> inline void products_wait() { simulator::multiply_all_but(N); }
template <int N> inline void products_done(float (&c)[N]) {
  simulator::multiply_all_but(0);
  for (int n = 0; n < N; n++) c[n] = simulator::sum_of(c[n]);
}
