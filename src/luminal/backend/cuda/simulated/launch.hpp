// A launch: arguments, memory of the blocks that are alive, their order.
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
