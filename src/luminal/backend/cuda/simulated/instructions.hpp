// What the prelude has (prelude.py): exchanges of a warp, products and rows of matrices.
namespace simulator {

template <class T> inline T exchanged(T value, int lane) {
  int first = current / LANES * LANES;
  memcpy(deposits[current], &value, sizeof value);
  __syncwarp();
  T found;
  memcpy(&found, deposits[first + (lane >= 0 && lane < LANES ? lane : current % LANES)], sizeof found);
  __syncwarp();
  return found;
}

inline float of_bf16(unsigned bits) { return same_bits<float>(bits << 16); }
// sign, exponent and mantissa of so many bits; last: the largest exponent is one of numbers, too
inline float of_small(unsigned bits, int exponent, int mantissa, bool last) {
  int e = bits >> mantissa & ((1 << exponent) - 1), m = bits & ((1 << mantissa) - 1);
  int bias = (1 << (exponent - 1)) - 1, most = (1 << exponent) - 1;
  float sign = bits >> (exponent + mantissa) & 1 ? -1.f : 1.f, number;
  if (e == most && (!last || m == (1 << mantissa) - 1)) number = m ? __builtin_nanf("") : __builtin_inff();
  else number = __builtin_ldexpf((e ? 1 << mantissa : 0) + m, (e ? e : 1) - bias - mantissa);
  return sign * number;
}
struct BF16 { typedef float Wide; enum { per = 2 }; static float of(unsigned r, int e) { return of_bf16(r >> 16 * e & 0xffff); } };
struct F16 { typedef float Wide; enum { per = 2 }; static float of(unsigned r, int e) { return of_small(r >> 16 * e & 0xffff, 5, 10, false); } };
struct TF32 { typedef float Wide; enum { per = 1 }; static float of(unsigned r, int) { return same_bits<float>(r & 0xffffe000u); } };
struct S8 { typedef int Wide; enum { per = 4 }; static int of(unsigned r, int e) { return (signed char)(r >> 8 * e); } };
struct E4M3 { typedef float Wide; enum { per = 4 }; static float of(unsigned r, int e) { return of_small(r >> 8 * e & 0xff, 4, 3, true); } };
struct E5M2 { typedef float Wide; enum { per = 4 }; static float of(unsigned r, int e) { return of_small(r >> 8 * e & 0xff, 5, 2, false); } };

template <class K> inline void mma(typename K::Wide (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  int lane = current % LANES, first = current - lane, per = K::per;
  memcpy(deposits[current], a, sizeof a);
  memcpy(deposits[current] + sizeof a, b, sizeof b);
  __syncwarp();
  for (int r = 0; r < 4; r++) {
    int row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
    for (int k = 0; k < 8 * per; k++) {
      int part = k / (4 * per), t = k % (4 * per) / per, e = k % per;
      unsigned left, right;
      memcpy(&left, deposits[first + row % 8 * 4 + t] + 4 * (row / 8 + 2 * part), 4);
      memcpy(&right, deposits[first + column * 4 + t] + sizeof a + 4 * part, 4);
      c[r] += K::of(left, e) * K::of(right, e);
    }
  }
  __syncwarp();
}

template <bool turned, int N> inline void ldmatrix(unsigned (&r)[N], buffer<unsigned short> row) {
  int lane = current % LANES, first = current - lane;
  if (lane < 8 * N) {
    if (row.count < 8) fail("reads %lld elements of a row of 8", row.count);
    if ((uintptr_t)row.data % 16) fail("reads a row that begins in between");
    for (int n = 0; n < 8 && row.shadows; n++) reads(row.shadows + n);
  }
  memcpy(deposits[current], row.data, lane < 8 * N ? 16 : 0);
  __syncwarp();
  for (int i = 0; i < N; i++) {
    unsigned short pair[2];
    for (int e = 0; e < 2; e++) {
      int y = turned ? lane % 4 * 2 + e : lane / 4, x = turned ? lane / 4 : lane % 4 * 2 + e;
      memcpy(&pair[e], deposits[first + 8 * i + y] + 2 * x, 2);
    }
    memcpy(&r[i], pair, 4);
  }
  __syncwarp();
}

}  // namespace simulator

template <class T> inline T lane_xor(T value, int n) { return simulator::exchanged(value, simulator::current % simulator::LANES ^ n); }
template <class T> inline T __shfl_xor_sync(unsigned, T value, int n) { return lane_xor(value, n); }

#define PRODUCT(name, kind) inline void name(simulator::kind::Wide (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { simulator::mma<simulator::kind>(c, a, b); }
PRODUCT(mma_bf16, BF16) PRODUCT(mma_f16, F16) PRODUCT(mma_tf32, TF32) PRODUCT(mma_s8, S8)
PRODUCT(mma_e4m3, E4M3) PRODUCT(mma_e5m2, E5M2)
#define MATRICES(n) \
  inline void ldmatrix_##n(unsigned (&r)[n], buffer<unsigned short> row) { simulator::ldmatrix<false>(r, row); } \
  inline void ldmatrix_##n##_turned(unsigned (&r)[n], buffer<unsigned short> row) { simulator::ldmatrix<true>(r, row); }
MATRICES(1) MATRICES(2) MATRICES(4)
