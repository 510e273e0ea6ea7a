// What CUDA text finds on a host: the threads of a block are fibers of one thread of the process.
// They change only at barriers and collectives, in an order that the caller chooses; every access
// is held against the extent of its memory and, if asked, against those of other threads.
#pragma once
#define LUMINAL_SIMULATED 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define SEEN extern "C" __attribute__((visibility("default")))
#define __global__
#define __device__
#define __launch_bounds__(...)

#define ONE(name) extern "C" double name(double); extern "C" float name##f(float);
#define TWO(name) extern "C" double name(double, double); extern "C" float name##f(float, float);
ONE(sqrt) ONE(exp2) ONE(log2) ONE(sin) ONE(cos) ONE(floor) ONE(ceil) ONE(trunc) ONE(rint) ONE(fabs)
TWO(fmod) TWO(copysign)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);

template <class To, class Of> inline To same_bits(Of a) {
  To b;
  static_assert(sizeof a == sizeof b, "");
  memcpy(&b, &a, sizeof b);
  return b;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __int_as_float(int a) { return same_bits<float>(a); }
inline unsigned __float_as_uint(float a) { return same_bits<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return same_bits<float>(a); }
inline long long __double_as_longlong(double a) { return same_bits<long long>(a); }
inline double __longlong_as_double(long long a) { return same_bits<double>(a); }

struct Place { unsigned x, y, z; };
inline Place threadIdx, blockIdx, blockDim, gridDim;

namespace simulator {

constexpr int STACK = 1 << 18, LANES = LUMINAL_LANES, DEPOSIT = 64, MESSAGE = 256, POISON = 0xFF;
enum State { READY, AT_BARRIER, AT_WARP, AT_PARTY, POLLS, DONE };

// party: of a barrier that only some threads of the block come to; seen: changes of atomics
struct Thread { State state; int fiber; unsigned warp_epoch; int party, size; unsigned party_epoch, seen; };
struct Fiber { jmp_buf resume; ucontext_t context; char* stack; int thread, block; };
struct Who { int block = -1, thread = -1; unsigned epoch = 0, warp_epoch = 0, party_epoch = 0; };
struct Shadow { Who writer, readers[2]; int copies = 0; };  // the last reader, and one before it; under way
struct Copy { char* to; const char* from; Shadow* shadows; int bytes, count, group; };
struct Copies { Copy* made; int count, room, group; };  // not done yet
constexpr int PRODUCTS = 32, SUMS = 128, GROUP = 4 * 32;  // of a thread; of one; threads of a group
struct Staged { char* bytes; Shadow* shadows; };
struct Product { float sums[SUMS]; Staged a, b; int columns; bool half, done; };
struct Products { Product* made; int count, done, waiting; };  // waiting: copies without a fence
// One that is alive. known: before which epoch of each block all that it did is seen; pending: from
// the next barrier on, by what one thread has acquired.
struct Block {
  unsigned number, epoch;
  int live, unfenced;
  Thread* threads;
  Copies* copies;
  Products* products;
  char (*deposits)[DEPOSIT];
  char* shared_bytes;
  Shadow* shared_shadows;
  unsigned *known, *pending;
};
struct Released { unsigned* at; unsigned* known; };  // an atomic, and what its releases have seen

inline Thread* threads;
inline Fiber* fibers;
inline Copies* copies;
inline Products* products;
inline int unfenced;
inline char (*deposits)[DEPOSIT];
inline int count, current, live, fiber_count, *idle, idle_count, *order_of;
inline unsigned epoch, changes, *known, *pending;
inline Block* blocks;
inline int here, alive, block_count, released_count;
inline Released released[16];
inline uint64_t seed;
inline jmp_buf scheduler;
inline char* message;
inline const char* kernel;
inline bool races;
inline void (*body)(const struct Slot*);
inline const struct Slot* slots;
inline char* shared_bytes;
inline long long shared_size;
inline Shadow* shared_shadows;

struct Slot { void* data; long long number; Shadow* shadows; };

[[noreturn]] inline void fail(const char* format, ...) {
  int used = snprintf(message, MESSAGE, "block %u, thread %d ", blockIdx.x, current);
  va_list rest;
  va_start(rest, format);
  vsnprintf(message + used, MESSAGE - used, format, rest);
  va_end(rest);
  longjmp(scheduler, 2);
}

inline void yield(State state) {
  int mine = current;
  threads[mine].state = state;
  if (!_setjmp(fibers[threads[mine].fiber].resume)) _longjmp(scheduler, 1);
  current = mine;
  threadIdx = {(unsigned)mine, 0, 0};
}

// A fiber runs one thread of a block after another, each that reaches its end without a stop.
inline void live_on(int number) {
  for (;;) {
    body(slots);
    Fiber& fiber = fibers[number];
    threads[fiber.thread].state = DONE;
    live--;
    idle[idle_count++] = number;
    if (!_setjmp(fiber.resume)) _longjmp(scheduler, 1);
  }
}

// What stands for the block that runs.
inline void enter(int number) {
  blocks[here].epoch = epoch, blocks[here].live = live, blocks[here].unfenced = unfenced;
  Block& it = blocks[here = number];
  epoch = it.epoch, live = it.live, unfenced = it.unfenced, threads = it.threads, copies = it.copies;
  products = it.products, deposits = it.deposits;
  shared_bytes = it.shared_bytes, shared_shadows = it.shared_shadows, known = it.known, pending = it.pending;
  blockIdx = {it.number, 0, 0};
}

inline void resume(int thread) {
  current = thread;
  threadIdx = {(unsigned)thread, 0, 0};
  Thread& it = threads[thread];
  if (it.fiber >= 0) _longjmp(fibers[it.fiber].resume, 1);
  if (idle_count) {
    it.fiber = idle[--idle_count];
    fibers[it.fiber].thread = thread;
    fibers[it.fiber].block = here;
    _longjmp(fibers[it.fiber].resume, 1);
  }
  it.fiber = fiber_count++;
  Fiber& fiber = fibers[it.fiber];
  fiber.thread = thread;
  if (!fiber.stack) fiber.stack = (char*)malloc(STACK);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = STACK;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, (void (*)())live_on, 1, it.fiber);
  setcontext(&fiber.context);
}

inline uint64_t random_number() {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

// order: 0 forward, 1 backward, else at random from this seed, another with each round.
inline int shuffle(uint64_t order) {
  int ready = 0;
  for (int n = 0; n < alive * count; n++) {
    int one = order == 1 ? alive * count - 1 - n : n;
    if (blocks[one / count].threads[one % count].state == READY) order_of[ready++] = one;
  }
  for (int n = ready - 1; order > 1 && n > 0; n--) {
    int other = random_number() % (n + 1), kept = order_of[n];
    order_of[n] = order_of[other];
    order_of[other] = kept;
  }
  return ready;
}

// Whether some thread may go on: all that a barrier or a warp waits for have come.
inline bool release() {
  bool found = false;
  int waiting = 0;
  for (int n = 0; n < count; n++) {
    if (threads[n].state == POLLS && threads[n].seen != changes) threads[n].state = READY;
    found |= threads[n].state == READY;
    waiting += threads[n].state == AT_BARRIER;
  }
  int come[16] = {};
  for (int n = 0; n < count; n++) if (threads[n].state == AT_PARTY) come[threads[n].party & 15]++;
  for (int n = 0; n < count; n++)
    if (threads[n].state == AT_PARTY && come[threads[n].party & 15] == threads[n].size)
      threads[n].state = READY, threads[n].party_epoch++, found = true;
  for (int first = 0; first < count; first += LANES) {
    int last = first + LANES < count ? first + LANES : count, here = 0, gone = 0;
    for (int n = first; n < last; n++) {
      here += threads[n].state == AT_WARP;
      gone += threads[n].state == DONE;
    }
    if (here && here == last - first) {
      for (int n = first; n < last; n++) threads[n].state = READY, threads[n].warp_epoch++;
      found = true;
    }
  }
  if (found || waiting < count) return found;
  epoch++;
  for (int n = 0; n < count; n++) threads[n].state = READY, threads[n].party = threads[n].party_epoch = 0;
  for (int n = 0; n < block_count && known; n++) known[n] = pending[n];
  return true;
}

inline void begin(int place, unsigned number) {
  enter(place);
  blocks[place].number = number, blockIdx = {number, 0, 0}, live = count, epoch = 0, unfenced = 0;
  for (int n = 0; n < count; n++) {
    threads[n] = {READY, -1}, copies[n].count = copies[n].group = 0;
    products[n].count = products[n].done = products[n].waiting = 0;
  }
  memset(shared_bytes, POISON, shared_size);
  if (races) for (long long n = 0; n < shared_size; n++) shared_shadows[n] = Shadow();
}

// Those that have begun, side by side.
inline bool run_blocks(uint64_t order) {
  fiber_count = idle_count = 0;
  for (;;) {
    bool lives = false, goes_on = false;
    for (int n = 0; n < alive; n++) {
      enter(n);
      lives |= live > 0;
      goes_on |= live > 0 && release();
    }
    if (!lives) return true;
    if (!goes_on) {
      int n = 0;
      while (enter(n), !live) n++;
      for (current = 0; threads[current].state == DONE; current++) {}
      snprintf(message, MESSAGE, "block %u: thread %d waits for others that do not come", blockIdx.x, current);
      return false;
    }
    static int step, ready;  // what lives across longjmp is no local variable
    ready = shuffle(order);
    for (step = 0; step < ready; step++) {
      enter(order_of[step] / count);
      int how = _setjmp(scheduler);
      if (how == 2) return false;
      if (how == 0) resume(order_of[step] % count);
    }
  }
}

template <class T> T* array(long long n) { return (T*)calloc(n ? n : 1, sizeof(T)); }

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

inline void __syncthreads() { simulator::yield(simulator::AT_BARRIER); }
inline void __syncwarp(unsigned = ~0u) { simulator::yield(simulator::AT_WARP); }
inline void party_meets(int number, int threads) {
  simulator::Thread& mine = simulator::threads[simulator::current];
  mine.party = number, mine.size = threads;
  simulator::yield(simulator::AT_PARTY);
}

// ---- what blocks that are alive together tell each other

namespace simulator {

inline Released& released_at(unsigned* at) {
  int n = 0;
  while (n < released_count && released[n].at != at) n++;
  if (n == 16) fail("meets others at more than 16 places");
  if (n == released_count) released[released_count++] = {at, (unsigned*)calloc(block_count, sizeof(unsigned))};
  return released[n];
}
inline void later(unsigned* those, const unsigned* others) {
  for (int n = 0; n < block_count && known; n++) if (others[n] > those[n]) those[n] = others[n];
}
inline unsigned add(buffer<unsigned> at, unsigned number, bool releases) {
  if (at.count < 1) fail("counts in no memory");
  unsigned before = *at.data;
  *at.data = before + number, changes++;
  if (releases && known) {
    unsigned* all = released_at(at.data).known;
    later(all, known);
    if (epoch > all[blockIdx.x]) all[blockIdx.x] = epoch;
  }
  return before;
}
inline unsigned look(buffer<unsigned> at, bool acquires) {  // again only when something has changed
  while (threads[current].seen == changes) yield(POLLS);
  threads[current].seen = changes;
  if (acquires && known) later(pending, released_at(at.data).known);
  return *at.data;
}

}  // namespace simulator

inline unsigned add_release(buffer<unsigned> at, unsigned n) { return simulator::add(at, n, true); }
inline unsigned add_relaxed(buffer<unsigned> at, unsigned n) { return simulator::add(at, n, false); }
inline unsigned load_acquire(buffer<unsigned> at) { return simulator::look(at, true); }
inline unsigned load_relaxed(buffer<unsigned> at) { return simulator::look(at, false); }

// ---- what the prelude has (prelude.py)

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
template <class T> inline T lane_down(T value, int n) { return simulator::exchanged(value, simulator::current % simulator::LANES + n); }
template <class T> inline T lane_up(T value, int n) { return simulator::exchanged(value, simulator::current % simulator::LANES - n); }
template <class T> inline T lane_of(T value, int n) { return simulator::exchanged(value, n & (simulator::LANES - 1)); }

#define PRODUCT(name, kind) inline void name(simulator::kind::Wide (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { simulator::mma<simulator::kind>(c, a, b); }
PRODUCT(mma_bf16, BF16) PRODUCT(mma_f16, F16) PRODUCT(mma_tf32, TF32) PRODUCT(mma_s8, S8)
PRODUCT(mma_e4m3, E4M3) PRODUCT(mma_e5m2, E5M2)
#define MATRICES(n) \
  inline void ldmatrix_##n(unsigned (&r)[n], buffer<unsigned short> row) { simulator::ldmatrix<false>(r, row); } \
  inline void ldmatrix_##n##_turned(unsigned (&r)[n], buffer<unsigned short> row) { simulator::ldmatrix<true>(r, row); }
MATRICES(1) MATRICES(2) MATRICES(4)

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
        float b = of_tile(it.b, 8 * j + 2 * (lane % 4) + e, k, it.half);
        for (int h = 0; h < 2; h++) it.sums[4 * j + 2 * h + e] += rows[h] * b;
      }
  }
  it.done = true;
}

inline void multiply_all_but(int last) {
  Products& mine = products[current];
  for (; mine.done < mine.count - last; mine.done++) multiply(mine.made[mine.done % PRODUCTS]);
}

template <int N> inline void product(float (&c)[N], buffer<unsigned short> a, buffer<unsigned short> b, bool half) {
  Products& mine = products[current];
  if (!mine.made) mine.made = array<Product>(PRODUCTS);
  if (unfenced) fail("multiplies where copies have arrived without a fence");
  if (a.count < 64 * 64 || b.count < 128 * N) fail("multiplies beyond the end of a tile");
  if (((char*)a.data - shared_bytes) % 1024 || ((char*)b.data - shared_bytes) % 1024)
    fail("multiplies a tile that begins in between");
  if (mine.count - mine.done == PRODUCTS / 2) fail("has too many products under way");
  Product& it = mine.made[mine.count % PRODUCTS];
  it = {{}, {(char*)a.data, a.shadows}, {(char*)b.data, b.shadows}, 2 * N, half, false};
  for (int n = 0; n < N; n++) {
    if (is_ticket(c[n]) && (same_bits<unsigned>(c[n]) & 255) != (unsigned)n) fail("moves sums that are under way");
    it.sums[n] = c[n], c[n] = ticket(mine.count, n);
  }
  meets(it.a, 64 * 64), meets(it.b, 128 * N);  // it may be done at once
  mine.count++;
}

}  // namespace simulator

#define STAGED(n) \
  inline void wgmma_bf16_##n(float (&c)[n / 2], buffer<unsigned short> a, buffer<unsigned short> b) { simulator::product(c, a, b, false); } \
  inline void wgmma_f16_##n(float (&c)[n / 2], buffer<unsigned short> a, buffer<unsigned short> b) { simulator::product(c, a, b, true); }
STAGED(64) STAGED(128) STAGED(256)
template <int N> inline void products_wait() { simulator::multiply_all_but(N); }
template <int N> inline void products_done(float (&c)[N]) {
  simulator::multiply_all_but(0);
  for (int n = 0; n < N; n++) c[n] = simulator::sum_of(c[n]);
}

namespace simulator {

template <class T> struct Argument { static T of(const Slot& s) { return s.number; } };
template <class T> struct Argument<buffer<T>> {
  static buffer<T> of(const Slot& s) { return {(T*)s.data, s.number / (long long)sizeof(T), s.shadows}; }
};
template <class T> struct Argument<T*> { static T* of(const Slot& s) { return (T*)s.data; } };
template <class T> struct Argument<const T&> { static const T& of(const Slot& s) { return *(const T*)&s.number; } };
template <> struct Argument<unsigned> {  // which number of a thread or a block
  static unsigned of(const Slot& s) {
    unsigned all[] = {blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x, blockIdx.x, gridDim.x, threadIdx.x};
    return all[s.number];
  }
};
template <class... A> struct Call { Call(void (*kernel)(A...), A... a) { kernel(a...); } };
template <class... A> inline void call(void (*kernel)(A...), const Slot* s) {
  Call<A...>{kernel, Argument<A>::of(*s++)...};
}

template <class... A> constexpr int parameters(void (*)(A...)) { return sizeof...(A); }

// together: all blocks are alive at once
struct Launch { int blocks, threads; long long shared, order, seed, races, together; };

inline void made(Block& it, int all) {
  it = {};
  it.threads = array<Thread>(count), it.copies = array<Copies>(count);
  it.products = array<Products>(count);
  it.deposits = (char(*)[DEPOSIT])array<char>((long long)count * DEPOSIT);
  it.shared_bytes = (char*)aligned_alloc(1024, (shared_size + 1024) & -1024ll);
  it.shared_shadows = races ? new Shadow[shared_size + 1] : nullptr;
  it.known = alive > 1 ? array<unsigned>(all) : nullptr, it.pending = alive > 1 ? array<unsigned>(all) : nullptr;
}
inline void gone(Block& it) {
  for (int n = 0; n < count; n++) free(it.copies[n].made), free(it.products[n].made);
  delete[] it.shared_shadows;
  free(it.shared_bytes), free(it.deposits), free(it.copies), free(it.products), free(it.threads), free(it.known), free(it.pending);
}

// Slots that name the same memory have the same shadows, if one of them is written.
inline void shadowed(Slot* slots, int parameters) {
  for (int n = 0; n < parameters; n++) {
    int first = 0;
    bool written = false;
    long long most = 0;
    while (slots[first].data != slots[n].data) first++;
    for (int m = n; m < parameters && first == n; m++)
      if (slots[m].data == slots[n].data) {
        written |= slots[m].shadows != nullptr;
        most = slots[m].number > most ? slots[m].number : most;
      }
    slots[n].shadows = first < n ? slots[first].shadows : written && slots[n].data && races
                       ? new Shadow[most + 1] : nullptr;
  }
}

}  // namespace simulator

SEEN int simulate(void (*kernel)(const simulator::Slot*), simulator::Slot* slots, int parameters,
                        const simulator::Launch* how, char* message) {
  using namespace simulator;
  simulator::message = message, simulator::slots = slots, body = kernel;
  count = how->threads, races = how->races, shared_size = how->shared;
  seed = how->seed * 0x9E3779B97F4A7C15ull + 88172645463325252ull;
  blockDim = {(unsigned)count, 1, 1}, gridDim = {(unsigned)how->blocks, 1, 1};
  block_count = how->blocks, alive = how->together ? how->blocks : 1, changes = 1, here = 0;
  blocks = array<Block>(alive), fibers = array<Fiber>((long long)alive * count);
  idle = array<int>((long long)alive * count), order_of = array<int>((long long)alive * count);
  for (int n = 0; n < alive; n++) made(blocks[n], how->blocks);
  shadowed(slots, parameters);
  bool right = true;
  for (int n = 0; right && n < how->blocks; n += alive) {
    for (int m = 0; m < alive; m++) begin(m, alive > 1 ? m : how->order == 1 ? how->blocks - 1 - n : n);
    right = run_blocks(how->order);
  }
  for (int n = 0; n < alive * count; n++) free(fibers[n].stack);
  for (int n = 0; n < alive; n++) gone(blocks[n]);
  for (int n = 0; n < parameters; n++) {
    int first = 0;
    while (slots[first].data != slots[n].data) first++;
    if (first == n) delete[] slots[n].shadows;
  }
  for (int n = 0; n < released_count; n++) free(released[n].known);
  released_count = 0;
  free(order_of), free(idle), free(fibers), free(blocks);
  return right ? 0 : 1;
}
