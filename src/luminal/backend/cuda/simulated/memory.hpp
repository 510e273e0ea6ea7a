// Memory of a known extent, and who met which element of it last.
namespace simulator {

inline bool conflict(const Who& other) {
  if (other.thread < 0 || (other.block == (int)blockIdx.x && other.thread == current)) return false;
  if (other.block != (int)blockIdx.x) return !known || other.epoch >= known[other.block];
  const Thread &mine = threads[current], &theirs = threads[other.thread];
  if (other.epoch != epoch) return false;
  if (mine.party && mine.party == theirs.party && other.party_epoch != mine.party_epoch) return false;
  return other.thread / LANES != current / LANES || other.warp_epoch == mine.warp_epoch;
}

inline Who self() {
  return {(int)blockIdx.x, current, epoch, threads[current].warp_epoch, threads[current].party_epoch};
}

inline void reads(Shadow* it) {
  if (it->copies) fail("reads what is being copied");
  if (conflict(it->writer)) fail("reads what thread %d of block %d writes", it->writer.thread, it->writer.block);
  if (conflict(it->readers[0])) it->readers[1] = it->readers[0];
  it->readers[0] = self();
}

inline void writes(Shadow* it) {
  if (conflict(it->writer)) fail("writes what thread %d of block %d writes", it->writer.thread, it->writer.block);
  for (const Who& other : it->readers)
    if (conflict(other)) fail("writes what thread %d of block %d reads", other.thread, other.block);
  it->writer = self();
}

}  // namespace simulator

// Memory of a known extent; what a program calls T* elsewhere.
template <class T> struct buffer {
  T* data;
  long long count;
  simulator::Shadow* shadows;  // of its elements

  struct Element {
    T* at;
    simulator::Shadow* shadow;
    operator T() const { if (shadow) simulator::reads(shadow); return *at; }
    void operator=(T value) const { if (shadow) simulator::writes(shadow); *at = value; }
    buffer operator&() const { return {at, 1, shadow}; }
  };
  Element operator[](long long n) const {
    if (n < 0 || n >= count) simulator::fail("meets element %lld of %lld", n, count);
    return {data + n, shadows ? shadows + n : nullptr};
  }
  template <class R> explicit operator buffer<R>() const { return {(R*)data, count * (long long)sizeof(T) / (long long)sizeof(R), shadows}; }
  buffer operator+(long long n) const {
    if (n < 0 || n > count) simulator::fail("goes to element %lld of %lld", n, count);
    return {data + n, count - n, shadows ? shadows + n : nullptr};
  }
};

// Memory of one thread.
template <class T, int N> struct local {
  T data[N];
  local() { memset(data, simulator::POISON, sizeof data); }
  T& operator[](long long n) {
    if (n < 0 || n >= N) simulator::fail("meets element %lld of its own %d", n, N);
    return data[n];
  }
};

template <class T> inline buffer<T> part_of(buffer<unsigned char> all, long long at, long long count) {
  buffer<unsigned char> here = all + at;
  if (here.count < count * (long long)sizeof(T)) simulator::fail("has a workspace too small by half");
  memset(here.data, simulator::POISON, count * sizeof(T));
  return {(T*)here.data, count, nullptr};
}

template <class T> inline buffer<T> shared_part(long long at, long long count) {
  using namespace simulator;
  if (at + count * (long long)sizeof(T) > shared_size) fail("has %lld shared bytes", shared_size);
  return {(T*)(shared_bytes + at), count, races ? shared_shadows + at : nullptr};
}

template <int N, class T> inline void check_words(buffer<T> at) {
  if (at.count * (long long)sizeof(T) < 4 * N) simulator::fail("meets %d bytes beyond the end", 4 * N);
  if ((uintptr_t)at.data % (4 * N)) simulator::fail("meets words that begin in between");
}
template <int N, class R, class T> inline void load_words(R (&to)[N], buffer<T> from) {
  check_words<N>(from);
  for (int n = 0; n < 4 * N / (int)sizeof(T) && from.shadows; n++) simulator::reads(from.shadows + n);
  memcpy(to, from.data, 4 * N);
}
template <int N, class R, class T> inline void store_words(buffer<T> to, const R (&from)[N]) {
  check_words<N>(to);
  for (int n = 0; n < 4 * N / (int)sizeof(T) && to.shadows; n++) simulator::writes(to.shadows + n);
  memcpy(to.data, from, 4 * N);
}
