// Reductions on two levels: memory that the ranks of a host share, and messages among hosts.
//
// The range is cut into one chunk for each rail (Topology::num_rails(): the smallest number of
// ranks on a host). Local rank i owns chunk i. An all-reduce has three phases:
//   1. The owner adds the chunks of all ranks of its host where they lie, in the order of reduce.h,
//      into its own range.
//   2. The owners of chunk i on all hosts (rail i) sum it by a ring or tree. All rails use the
//      network at the same time.
//   3. The owner copies the sum into the ranges of all ranks of its host. Then a barrier.
//
//   Example: 2 hosts with 2 ranks each; every rank has 100 floats. There are 2 rails and 2 chunks
//   (64 and 36 floats, because chunks begin on cache lines of 16 floats). Rank 0 adds the chunks 0
//   of ranks 0 and 1; rank 2 does the same on the other host; rank 0 and rank 2 sum the result by
//   messages and write it back. At the same time ranks 1 and 3 sum chunk 1.
//
// If there is one host, there are no rings, and phases 1 and 3 are one pass over memory: each byte
// of each rank's range is read once and written once. If each host has one rank, only the ring is
// left.
//
// A range in an arena is reduced in place. Other memory passes through the staging areas piece by
// piece, with a copy in and a copy out.
#include <algorithm>
#include <cstring>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/reduce.h"
#include "src/core/divide_up.h"

namespace carole::collectives {

namespace {

// Returns the chunk that a local rank owns. Chunks begin on cache lines if the range does. This
// helps vector code and avoids false sharing.
template <typename T>
Piece ChunkOf(size_t count, int rails, int local_rank) {
  constexpr size_t kLine = 64 / sizeof(T);
  const Piece lines = SplitEvenly(DivideUp(count, kLine), rails, local_rank);
  const size_t begin = std::min(count, lines.begin * kLine);
  return {begin, std::min(count, (lines.begin + lines.count) * kLine) - begin};
}

// The sum among hosts: RingSum or TreeSum.
template <typename T>
using SumAmong = void (*)(CollectiveContext&, const Members&, std::span<T>);

// Runs the three phases on `count` elements; ranks[l] is the address of local rank l's elements.
// All ranks have filled them before.
template <typename T>
void SumAmongAll(CollectiveContext& context, SumAmong<T> sum_hosts, std::span<T* const> ranks,
                 size_t count) {
  const Topology& t = context.topology;
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
      sum_hosts(context, t.RailMembers(), std::span<T>(mine, chunk.count));
      for (T* other : chunks) {
        if (other != mine) std::memcpy(other, mine, chunk.count * sizeof(T));
      }
    }
  }
  context.node->Barrier(*context.watchdog);
}

template <typename T>
std::vector<T*> As(std::span<std::byte* const> memory) {
  std::vector<T*> typed;
  for (std::byte* address : memory) typed.push_back(reinterpret_cast<T*>(address));
  return typed;
}

template <typename T>
void SumInTwoLevels(CollectiveContext& context, SumAmong<T> sum_hosts, std::span<T> data) {
  if (IsOneRankPerHost(context.topology)) {
    T* const alone = data.data();
    return SumAmongAll<T>(context, sum_hosts, {&alone, 1}, data.size());
  }
  if (!context.local_addresses.empty())
    return SumAmongAll<T>(context, sum_hosts, As<T>(context.local_addresses), data.size());
  const std::vector<T*> ranks = As<T>(context.node->staging());
  T* const mine = ranks[context.topology.local_rank];
  constexpr size_t kPiece = NodeGroup::kStagingBytes / sizeof(T);
  for (size_t begin = 0; begin < data.size(); begin += kPiece) {
    const auto piece = data.subspan(begin, std::min(kPiece, data.size() - begin));
    std::memcpy(mine, piece.data(), piece.size_bytes());
    context.node->Barrier(*context.watchdog);
    SumAmongAll<T>(context, sum_hosts, ranks, piece.size());
    std::memcpy(piece.data(), mine, piece.size_bytes());
  }
}

// Sums one piece of `in` over the ranks of this host: local rank l gets the sum of piece pieces[l]
// in `out`. If the range is not in an arena, equally long parts of these pieces lie one after
// another in the staging area.
template <typename T>
void SumPiecesOfHost(CollectiveContext& context, std::span<const T> in, std::span<const int> pieces,
                     std::span<T> out) {
  const int rank = context.topology.local_rank;
  const auto sum = [&](std::span<std::byte* const> memory, size_t offset, std::span<T> into) {
    context.node->Barrier(*context.watchdog);  // all ranks have filled theirs
    std::vector<T*> ranks = As<T>(memory);
    for (T*& address : ranks) address += offset;
    SumRanks(ranks.data(), ranks.size(), into.data(), into.size());
    context.node->Barrier(*context.watchdog);  // all ranks have read it
  };
  if (!context.local_addresses.empty())
    return sum(context.local_addresses, pieces[rank] * out.size(), out);
  const size_t most = NodeGroup::kStagingBytes / sizeof(T) / pieces.size();
  T* const staging = reinterpret_cast<T*>(context.node->staging()[rank]);
  for (size_t begin = 0; begin < out.size(); begin += most) {
    const size_t length = std::min(most, out.size() - begin);
    for (size_t l = 0; l < pieces.size(); ++l) {
      std::memcpy(staging + l * length, &in[pieces[l] * out.size() + begin], length * sizeof(T));
    }
    sum(context.node->staging(), rank * length, out.subspan(begin, length));
  }
}

}  // namespace

template <typename T>
void HierarchicalAllReduce(CollectiveContext& context, std::span<T> data) {
  SumInTwoLevels<T>(context, RingSum<T>, data);
}

template <typename T>
void HierarchicalTreeAllReduce(CollectiveContext& context, std::span<T> data) {
  SumInTwoLevels<T>(context, TreeSum<T>, data);
}

bool FitsInline(const Topology& topology, size_t bytes) {
  // Beyond this number of bytes to read, sharing the work is faster than saving one barrier.
  constexpr size_t kMostRead = 64 << 10;
  return IsOneHost(topology) && bytes * topology.size() <= kMostRead;
}

template <typename T>
void SumInlined(CollectiveContext& context, std::span<T> data) {
  std::vector<T*> ranks;
  for (size_t r = 0; r < context.node->staging().size(); ++r) {
    ranks.push_back(reinterpret_cast<T*>(context.node->InlineData(r)));
  }
  SumRanks(ranks.data(), ranks.size(), data.data(), data.size());
}

template <typename T>
void ReduceScatterPieces(CollectiveContext& context, std::span<T> in, std::span<T> out) {
  const Topology& t = context.topology;
  if (!t.has_even_hosts() || IsOneRankPerHost(t))
    return RingReduceScatter(context, t.AllRanks(), in, out);
  if (IsOneHost(t)) return SumPiecesOfHost<T>(context, in, t.local_ranks(), out);
  Buffer memory(t.hosts.size() * out.size_bytes());
  const std::span<T> sums(reinterpret_cast<T*>(memory.data()), t.hosts.size() * out.size());
  for (size_t h = 0; h < t.hosts.size(); ++h)
    SumPiecesOfHost<T>(context, in, t.hosts[h], sums.subspan(h * out.size(), out.size()));
  RingReduceScatter(context, t.RailMembers(), sums, out);
}

template void HierarchicalAllReduce(CollectiveContext&, std::span<float>);
template void HierarchicalAllReduce(CollectiveContext&, std::span<double>);
template void HierarchicalTreeAllReduce(CollectiveContext&, std::span<float>);
template void HierarchicalTreeAllReduce(CollectiveContext&, std::span<double>);
template void SumInlined(CollectiveContext&, std::span<float>);
template void SumInlined(CollectiveContext&, std::span<double>);
template void ReduceScatterPieces(CollectiveContext&, std::span<float>, std::span<float>);
template void ReduceScatterPieces(CollectiveContext&, std::span<double>, std::span<double>);

}  // namespace carole::collectives
