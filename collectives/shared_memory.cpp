// All-reduce in two levels: memory shared by the ranks of a host, rings among hosts.
//
// The range is cut into as many chunks as there are rails (MakeTopology: the smallest number of
// ranks on a host). Local rank i owns chunk i: it adds the chunk of all its neighbours, in rank
// order, where it lies; goes round the ring that joins the i-th ranks of all hosts; and writes the
// sum back to all neighbours. With one host the rings vanish and adding and writing back are one
// pass over memory: each byte of each rank's range is read once and written once. With one rank on
// each host only the ring is left.
//
// A range in an arena is worked on in place. Any other goes piece by piece through the staging
// areas.
#include <algorithm>
#include <cstring>

#include "collectives/algorithms.h"
#include "collectives/reduce.h"

namespace carole::collectives {

namespace {

// The owner's chunk. Chunks begin on cache lines when the range does, for vector code and against
// false sharing.
template <typename T>
Piece ChunkOf(size_t count, int rails, int local_rank) {
  constexpr size_t kLine = 64 / sizeof(T);
  const Piece lines = SplitEvenly((count + kLine - 1) / kLine, rails, local_rank);
  const size_t begin = std::min(count, lines.begin * kLine);
  return {begin, std::min(count, (lines.begin + lines.count) * kLine) - begin};
}

// The three phases on `count` elements that lie at ranks[l] for local rank l. All ranks have filled
// them.
template <typename T>
void SumAmongAll(Exchange& x, std::span<T* const> ranks, size_t count) {
  const Topology& t = x.topology;
  const int rails = t.num_rails();
  if (t.local_rank < rails) {
    const Piece chunk = ChunkOf<T>(count, rails, t.local_rank);
    std::vector<T*> chunks;
    for (T* rank : ranks) chunks.push_back(rank + chunk.begin);
    if (t.hosts.size() == 1) {
      SumRanksToAll(chunks.data(), chunks.size(), chunk.count);
    } else {
      T* const mine = chunks[t.local_rank];
      if (chunks.size() > 1) SumRanks(chunks.data(), chunks.size(), mine, chunk.count);
      std::vector<int> members;
      for (const auto& host : t.hosts) members.push_back(host[t.local_rank]);
      RingSum(x, members, t.host(), std::span<T>(mine, chunk.count));
      for (T* other : chunks) {
        if (other != mine) std::memcpy(other, mine, chunk.count * sizeof(T));
      }
    }
  }
  x.node->Sync(*x.watch);
}

}  // namespace

template <typename T>
void HierarchicalAllReduce(Exchange& x, std::span<T> data) {
  std::vector<T*> ranks;
  if (static_cast<int>(x.topology.hosts.size()) == x.topology.size()) {
    T* const alone = data.data();
    return SumAmongAll<T>(x, {&alone, 1}, data.size());
  }
  if (!x.peers.empty()) {
    for (std::byte* peer : x.peers) ranks.push_back(reinterpret_cast<T*>(peer));
    return SumAmongAll<T>(x, ranks, data.size());
  }
  for (std::byte* staging : x.node->staging()) ranks.push_back(reinterpret_cast<T*>(staging));
  T* const mine = ranks[x.topology.local_rank];
  constexpr size_t kPiece = NodeGroup::kStagingBytes / sizeof(T);
  for (size_t begin = 0; begin < data.size(); begin += kPiece) {
    const auto piece = data.subspan(begin, std::min(kPiece, data.size() - begin));
    std::memcpy(mine, piece.data(), piece.size_bytes());
    x.node->Sync(*x.watch);
    SumAmongAll<T>(x, ranks, piece.size());
    std::memcpy(piece.data(), mine, piece.size_bytes());
  }
}

template void HierarchicalAllReduce(Exchange&, std::span<float>);
template void HierarchicalAllReduce(Exchange&, std::span<double>);

}  // namespace carole::collectives
