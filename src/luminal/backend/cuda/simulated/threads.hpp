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
struct Product { float sums[SUMS]; Staged a, b; int columns; bool half, turned, done; };
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

}  // namespace simulator
