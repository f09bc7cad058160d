// The all-reduce algorithms by name, and the plans that they run. ALGORITHMS.md says which wins
// when.
//
// To add one: write it in its own .cpp as a function of (Exchange&, std::span<T>), declare it here,
// add a row.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/node_group.h"
#include "collectives/transport.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

// Elements [begin, begin + count) of a range.
struct Piece {
  size_t begin = 0;
  size_t count = 0;
  bool operator==(const Piece&) const = default;
};

// Part `index` of `count` elements split as evenly as can be into `parts`; the first parts are one
// longer.
Piece SplitEvenly(size_t count, size_t parts, size_t index);

// Which ranks share a host. Hosts are numbered by their lowest rank; local ranks ascend with ranks.
struct Topology {
  int rank = 0;
  std::vector<int> host_of;             // (size) host of each rank
  std::vector<std::vector<int>> hosts;  // ranks of each host, ascending
  int local_rank = 0;

  int size() const { return static_cast<int>(host_of.size()); }
  int host() const { return host_of[rank]; }
  const std::vector<int>& neighbours() const { return hosts[host()]; }  // ranks of this host
  int local_size() const { return static_cast<int>(neighbours().size()); }
  // Rings among hosts run side by side, ring i joining local rank i of every host.
  int num_rails() const;
};

// host_keys[r] says on which host rank r runs; equal keys share one.
Topology MakeTopology(int rank, std::span<const std::string> host_keys);

// One step of a ring: send a segment to the right and receive another from the left, both of this
// rank's range. A rank has to have received step i - lag before it sends step i.
struct RingStep {
  Piece send;
  Piece receive;
  bool add = false;  // to what is there, else overwrite
};
struct RingPlan {
  std::vector<RingStep> steps;
  size_t lag = 1;          // segments of a chunk
  size_t max_segment = 0;  // elements
};

// All-reduce of `count` elements on a ring of `size` members: size-1 steps of reduce-scatter,
// size-1 of all-gather.
RingPlan PlanRing(size_t count, int size, int index, size_t segment_elements);

// What an algorithm works with. All ranks run the same operation, agreed on before (engine.cpp).
struct Exchange {
  Topology topology;
  Transport* transport = nullptr;
  NodeGroup* node = nullptr;
  Watch* watch = nullptr;
  size_t segment_bytes = 0;
  std::vector<std::byte*>
      peers;       // where this range lies in each local rank's arena; empty: outside of arenas
  Buffer scratch;  // received segments, kept between operations
};

// Sums `data` over `members`, of which this rank is number `index`, in place.
template <typename T>
void RingSum(Exchange& x, std::span<const int> members, int index, std::span<T> data);

// out holds size() pieces of in.size() bytes, rank by rank. Goes round the ring of all ranks.
void RingAllGather(Exchange& x, std::span<const std::byte> in, std::span<std::byte> out);

// The root's bytes to all, segment by segment along the chain root, root+1, …
void ChainBroadcast(Exchange& x, std::span<std::byte> data, int root);

// The rows' functions: sum `data` over all ranks, in place.
template <typename T>
void RingAllReduce(Exchange& x, std::span<T> data);
template <typename T>
void HierarchicalAllReduce(Exchange& x, std::span<T> data);

struct AllReduceEntry {
  std::string_view name;
  std::string_view fits_where;  // words for errors
  bool (*fits)(const Topology&);
  void (*sum_f32)(Exchange&, std::span<float>);  // null: the backend's own
  void (*sum_f64)(Exchange&, std::span<double>);
};

// Among the ranks of one host the hierarchical algorithm is the shared-memory one: its rings have
// one member.
inline constexpr AllReduceEntry kAllReduce[] = {
    {.name = "ring",
     .fits_where = "anywhere",
     .fits = [](const Topology&) { return true; },
     .sum_f32 = RingAllReduce<float>,
     .sum_f64 = RingAllReduce<double>},
    {.name = "shared_memory",
     .fits_where = "ranks of one host",
     .fits = [](const Topology& t) { return t.hosts.size() == 1; },
     .sum_f32 = HierarchicalAllReduce<float>,
     .sum_f64 = HierarchicalAllReduce<double>},
    {.name = "hierarchical",
     .fits_where = "anywhere",
     .fits = [](const Topology&) { return true; },
     .sum_f32 = HierarchicalAllReduce<float>,
     .sum_f64 = HierarchicalAllReduce<double>},
    {.name = "mpi",
     .fits_where = "ranks started by MPI",
     .fits = [](const Topology&) { return true; },
     .sum_f32 = nullptr,
     .sum_f64 = nullptr},
};

// Row of the algorithm, "auto" resolved. Throws UsageError if there is none of the name or it does
// not fit.
size_t FindAllReduce(std::string_view name, const Topology& topology);

}  // namespace carole::collectives
