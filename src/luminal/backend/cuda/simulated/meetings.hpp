// Where threads of a block meet, and what blocks that are alive together tell each other.
inline void __syncthreads() { simulator::yield(simulator::AT_BARRIER); }
inline void __syncwarp(unsigned = ~0u) { simulator::yield(simulator::AT_WARP); }
inline void party_meets(int number, int threads) {
  simulator::Thread& mine = simulator::threads[simulator::current];
  mine.party = number, mine.size = threads;
  simulator::yield(simulator::AT_PARTY);
}

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
