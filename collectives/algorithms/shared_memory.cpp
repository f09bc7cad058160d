// All-reduce in two levels: memory shared by the ranks of a host, rings among hosts.
//
// The range is cut into as many chunks as there are rails (Topology::num_rails(): the smallest
// number of ranks on a host). Local rank i owns chunk i: it adds the chunk of all its neighbors,
// in rank order, where it lies; sums it with the i-th ranks of all hosts, by ring or tree; and
// writes the sum back to all neighbors. With one host the rings vanish and adding and writing back
// are one pass over memory: each byte of each rank's range is read once and written once. With one
// rank on each host only the ring is left.
//
// A range in an arena is worked on in place. Any other goes piece by piece through the staging
// areas.
#include <algorithm>
#include <cstring>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/reduce.h"
#include "src/core/divide_up.h"

namespace carole::collectives {

namespace {

// The owner's chunk. Chunks begin on cache lines when the range does, for vector code and against
// false sharing.
template <typename T>
Piece ChunkOf(size_t count, int rails, int local_rank) {
  constexpr size_t kLine = 64 / sizeof(T);
  const Piece lines = SplitEvenly(DivideUp(count, kLine), rails, local_rank);
  const size_t begin = std::min(count, lines.begin * kLine);
  return {begin, std::min(count, (lines.begin + lines.count) * kLine) - begin};
}

// RingSum or TreeSum.
template <typename T>
using SumAmong = void (*)(Exchange&, const Members&, std::span<T>);

// The three phases on `count` elements that lie at ranks[l] for local rank l. All ranks have filled
// them.
template <typename T>
void SumAmongAll(Exchange& x, SumAmong<T> sum_hosts, std::span<T* const> ranks, size_t count) {
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
      sum_hosts(x, t.Counterparts(), std::span<T>(mine, chunk.count));
      for (T* other : chunks) {
        if (other != mine) std::memcpy(other, mine, chunk.count * sizeof(T));
      }
    }
  }
  x.node->Sync(*x.watch);
}

template <typename T>
std::vector<T*> As(std::span<std::byte* const> memory) {
  std::vector<T*> typed;
  for (std::byte* address : memory) typed.push_back(reinterpret_cast<T*>(address));
  return typed;
}

template <typename T>
void SumInTwoLevels(Exchange& x, SumAmong<T> sum_hosts, std::span<T> data) {
  if (IsOneRankPerHost(x.topology)) {
    T* const alone = data.data();
    return SumAmongAll<T>(x, sum_hosts, {&alone, 1}, data.size());
  }
  if (!x.peers.empty()) return SumAmongAll<T>(x, sum_hosts, As<T>(x.peers), data.size());
  const std::vector<T*> ranks = As<T>(x.node->staging());
  T* const mine = ranks[x.topology.local_rank];
  constexpr size_t kPiece = NodeGroup::kStagingBytes / sizeof(T);
  for (size_t begin = 0; begin < data.size(); begin += kPiece) {
    const auto piece = data.subspan(begin, std::min(kPiece, data.size() - begin));
    std::memcpy(mine, piece.data(), piece.size_bytes());
    x.node->Sync(*x.watch);
    SumAmongAll<T>(x, sum_hosts, ranks, piece.size());
    std::memcpy(piece.data(), mine, piece.size_bytes());
  }
}

// out: the sum over this host's ranks of one piece of `in`, that of rank pieces[l] on local rank l.
// Outside of arenas, equally long parts of all these pieces lie one behind the other in the staging
// area.
template <typename T>
void SumOfNeighbors(Exchange& x, std::span<const T> in, std::span<const int> pieces,
                    std::span<T> out) {
  const int rank = x.topology.local_rank;
  const auto sum = [&](std::span<std::byte* const> memory, size_t offset, std::span<T> into) {
    x.node->Sync(*x.watch);  // all have filled theirs
    std::vector<T*> ranks = As<T>(memory);
    for (T*& address : ranks) address += offset;
    SumRanks(ranks.data(), ranks.size(), into.data(), into.size());
    x.node->Sync(*x.watch);  // all have read it
  };
  if (!x.peers.empty()) return sum(x.peers, pieces[rank] * out.size(), out);
  const size_t most = NodeGroup::kStagingBytes / sizeof(T) / pieces.size();
  T* const staging = reinterpret_cast<T*>(x.node->staging()[rank]);
  for (size_t begin = 0; begin < out.size(); begin += most) {
    const size_t length = std::min(most, out.size() - begin);
    for (size_t l = 0; l < pieces.size(); ++l) {
      std::memcpy(staging + l * length, &in[pieces[l] * out.size() + begin], length * sizeof(T));
    }
    sum(x.node->staging(), rank * length, out.subspan(begin, length));
  }
}

}  // namespace

template <typename T>
void HierarchicalAllReduce(Exchange& x, std::span<T> data) {
  SumInTwoLevels<T>(x, RingSum<T>, data);
}

template <typename T>
void HierarchicalTreeAllReduce(Exchange& x, std::span<T> data) {
  SumInTwoLevels<T>(x, TreeSum<T>, data);
}

bool FitsInline(const Topology& topology, size_t bytes) {
  constexpr size_t kMostRead = 64 << 10;  // beyond, sharing the work wins over one meeting less
  return IsOneHost(topology) && bytes * topology.size() <= kMostRead;
}

template <typename T>
void SumInlined(Exchange& x, std::span<T> data) {
  std::vector<T*> ranks;
  for (size_t r = 0; r < x.node->staging().size(); ++r) {
    ranks.push_back(reinterpret_cast<T*>(x.node->Shown(r)));
  }
  SumRanks(ranks.data(), ranks.size(), data.data(), data.size());
}

template <typename T>
void ReduceScatterPieces(Exchange& x, std::span<T> in, std::span<T> out) {
  const Topology& t = x.topology;
  if (!t.has_even_hosts() || IsOneRankPerHost(t))
    return RingReduceScatter(x, t.AllRanks(), in, out);
  if (IsOneHost(t)) return SumOfNeighbors<T>(x, in, t.neighbors(), out);
  Buffer memory(t.hosts.size() * out.size_bytes());
  const std::span<T> sums(reinterpret_cast<T*>(memory.data()), t.hosts.size() * out.size());
  for (size_t h = 0; h < t.hosts.size(); ++h)
    SumOfNeighbors<T>(x, in, t.hosts[h], sums.subspan(h * out.size(), out.size()));
  RingReduceScatter(x, t.Counterparts(), sums, out);
}

template void HierarchicalAllReduce(Exchange&, std::span<float>);
template void HierarchicalAllReduce(Exchange&, std::span<double>);
template void HierarchicalTreeAllReduce(Exchange&, std::span<float>);
template void HierarchicalTreeAllReduce(Exchange&, std::span<double>);
template void SumInlined(Exchange&, std::span<float>);
template void SumInlined(Exchange&, std::span<double>);
template void ReduceScatterPieces(Exchange&, std::span<float>, std::span<float>);
template void ReduceScatterPieces(Exchange&, std::span<double>, std::span<double>);

}  // namespace carole::collectives
