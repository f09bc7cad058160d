// The functions of the all-reduce algorithms (kAllReduce), and what they are built of.
// ../ALGORITHMS.md says which one wins when.
//
// To add an algorithm: write it in a .cpp of its own as a function of (CollectiveContext&,
// std::span<T>). Declare it here and add a row to kAllReduce. Add its name to
// ../all_reduce_algorithm.h. It sums in place over all ranks, and
// all ranks must end with the same bits. It cuts messages into segments of segment_bytes. Transport
// and NodeGroup enforce the deadlines. Only rows with `supports_bf16_wire` read
// CollectiveContext::wire; the others send fp32 unrounded.
//
// Words used in this room:
//   chunk    one part of the range for each rank (or host) that takes part
//   segment  the part of a chunk that one message carries
//   turn     one step of a ring, in which each member passes one chunk on
//   rail     the ranks with the same local rank, one on each host
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/all_reduce_algorithm.h"
#include "collectives/transport/node_group.h"
#include "collectives/transport/transport.h"
#include "src/core/dtype.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

inline constexpr size_t kInFlight = 4;  // messages in flight in each direction

// Elements [begin, begin + count) of a range.
struct Piece {
  size_t begin = 0;
  size_t count = 0;
  bool operator==(const Piece&) const = default;
};

// Splits `count` elements as evenly as possible into `parts` and returns part `index`. The first
// parts are one element longer if `count` is not divisible.
Piece SplitEvenly(size_t count, size_t parts, size_t index);

// A group of ranks that run a ring or tree, and this rank's index in it.
struct Members {
  std::vector<int> ranks;
  int index = 0;

  // This rank's neighbors on the ring of all members: it sends to the right.
  int left() const { return ranks[(index + ranks.size() - 1) % ranks.size()]; }
  int right() const { return ranks[(index + 1) % ranks.size()]; }
};

// Which ranks share a host, that is, memory. Hosts are numbered in the order of their lowest ranks.
// Local ranks ascend with ranks.
struct Topology {
  int rank = 0;
  std::vector<int> host_of;             // host of each rank
  std::vector<std::vector<int>> hosts;  // ranks of each host, ascending
  int local_rank = 0;                   // index of this rank on its host
  // Index of this rank among the ranks of its machine, and their number. Differs from the host's if
  // the ranks of the machine cannot share memory: then each rank counts as a host.
  int machine_rank = 0, machine_size = 1;

  int size() const { return static_cast<int>(host_of.size()); }
  int host() const { return host_of[rank]; }
  const std::vector<int>& local_ranks() const { return hosts[host()]; }  // by local rank
  int local_size() const { return static_cast<int>(local_ranks().size()); }
  // Whether all ranks of this machine share memory.
  bool shares_memory() const { return machine_size == local_size(); }
  // Number of rails: the smallest number of ranks on a host. Rings (or trees) among hosts run in
  // parallel; rail i joins local rank i of every host.
  int num_rails() const;
  bool has_even_hosts() const;  // all hosts have the same number of ranks
  Members AllRanks() const;     // all ranks in ascending order
  // The ranks with this local rank on all hosts. Requires local_rank < num_rails().
  Members RailMembers() const;
};

// host_keys[r] identifies the host of rank r. Ranks with equal keys share a host.
Topology MakeTopology(int rank, std::span<const std::string> host_keys);

// One step of a ring: sends a segment of this rank's range to the right and receives another from
// the left. A member can send step i only after it has received step i - lag.
struct RingStep {
  Piece send;
  Piece receive;
  bool add = false;  // whether the received segment is added; else it overwrites
};
struct RingPlan {
  std::vector<RingStep> steps;  // 2 * (size - 1) turns of `lag` steps
  size_t lag = 1;               // segments in a chunk
  size_t max_segment = 0;       // elements of the longest segment
};

// Plans the all-reduce of `count` elements on a ring of `size` members, as seen by member `index`.
// First come size-1 turns of reduce-scatter. After them this member holds the sum of chunk index+1.
// Then come size-1 turns of all-gather.
RingPlan PlanRing(size_t count, int size, int index, size_t segment_elements);

// The inputs of an algorithm. When it runs, all ranks have arrived and their headers match
// (engine.cpp).
struct CollectiveContext {
  Topology topology;
  Transport* transport = nullptr;
  NodeGroup* node = nullptr;
  Watchdog* watchdog = nullptr;
  size_t segment_bytes = 0;
  // Type in which this operation's fp32 travels between hosts: kF32 or kBF16.
  DType wire = DType::kF32;
  // The address of this range in each local rank's arena; empty if the range is not in an arena.
  std::vector<std::byte*> local_addresses;
  Buffer scratch;           // for received segments; kept between operations
  double link_seconds = 0;  // WaitStats::link_seconds

  // Returns scratch memory for at least `count` elements; invalidates what earlier calls returned.
  template <typename T>
  T* Scratch(size_t count) {
    if (scratch.size() < count * sizeof(T)) scratch = Buffer(count * sizeof(T));
    return reinterpret_cast<T*>(scratch.data());
  }
};

// These sum `data` over `members`, in place.
template <typename T>
void RingSum(CollectiveContext& context, const Members& members, std::span<T> data);
template <typename T>
void TreeSum(CollectiveContext& context, const Members& members, std::span<T> data);
// Replaces RingSum if fp32 travels as bf16.
void Bf16Sum(CollectiveContext& context, const Members& members, std::span<float> data);

// Inline sums, for small ranges on one host. The ranks show each other their data together with the
// operation's header (NodeGroup::CompareHeaders). Then every rank adds all of it by itself, so no
// rank waits again. The result has the same bits as that of "shared_memory".
bool FitsInline(const Topology& topology, size_t bytes);
template <typename T>
void SumInlined(CollectiveContext& context, std::span<T> data);

// Sums `in` over all ranks and puts this rank's piece of the sum into `out`. `in` holds size()
// pieces of out.size() elements and is destroyed.
template <typename T>
void ReduceScatterPieces(CollectiveContext& context, std::span<T> in, std::span<T> out);
// The same among `members` only, by messages.
template <typename T>
void RingReduceScatter(CollectiveContext& context, const Members& members, std::span<T> in,
                       std::span<T> out);

// Gathers in.size() bytes of each rank into `out`, in the order of ranks.
void AllGatherBytes(CollectiveContext& context, std::span<const std::byte> in,
                    std::span<std::byte> out);

// Sends `out` to the next rank and receives `in`, which is as long, from the rank before.
void ShiftBytes(CollectiveContext& context, std::span<const std::byte> out,
                std::span<std::byte> in);

// Copies the root's bytes to all ranks.
void BroadcastBytes(CollectiveContext& context, std::span<std::byte> data, int root);

// The functions in kAllReduce: sum `data` over all ranks, in place.
template <typename T>
void RingAllReduce(CollectiveContext& context, std::span<T> data);
template <typename T>
void TreeAllReduce(CollectiveContext& context, std::span<T> data);
template <typename T>
void HierarchicalAllReduce(CollectiveContext& context, std::span<T> data);
template <typename T>
void HierarchicalTreeAllReduce(CollectiveContext& context, std::span<T> data);

struct AllReduceEntry {
  AllReduceAlgorithm algorithm;
  bool supports_bf16_wire = false;             // whether it reads CollectiveContext::wire
  std::string_view requirement;                // what fits() requires, for error messages
  bool (*fits)(const Topology&);               // whether it can run on these hosts
  bool (*is_auto_candidate)(const Topology&);  // whether "auto" measures it
  void (*sum_f32)(CollectiveContext&, std::span<float>);  // null: CommBackend::NativeAllReduce
  void (*sum_f64)(CollectiveContext&, std::span<double>);
};

inline bool IsOneHost(const Topology& t) { return t.hosts.size() == 1; }
inline bool IsOneRankPerHost(const Topology& t) {
  return !IsOneHost(t) && static_cast<int>(t.hosts.size()) == t.size();
}
inline bool IsMixed(const Topology& t) { return !IsOneHost(t) && !IsOneRankPerHost(t); }
inline bool Always(const Topology&) { return true; }
inline bool Never(const Topology&) { return false; }

// On one host the hierarchical algorithms equal "shared_memory", because their rings and trees have
// one member.
inline constexpr AllReduceEntry kAllReduce[] = {
    {.algorithm = AllReduceAlgorithm::kRing,
     .supports_bf16_wire = true,
     .requirement = "anywhere",
     .fits = Always,
     .is_auto_candidate = IsOneRankPerHost,
     .sum_f32 = RingAllReduce<float>,
     .sum_f64 = RingAllReduce<double>},
    {.algorithm = AllReduceAlgorithm::kTree,
     .requirement = "anywhere",
     .fits = Always,
     .is_auto_candidate = IsOneRankPerHost,
     .sum_f32 = TreeAllReduce<float>,
     .sum_f64 = TreeAllReduce<double>},
    {.algorithm = AllReduceAlgorithm::kSharedMemory,
     .requirement = "ranks of one host",
     .fits = IsOneHost,
     .is_auto_candidate = IsOneHost,
     .sum_f32 = HierarchicalAllReduce<float>,
     .sum_f64 = HierarchicalAllReduce<double>},
    {.algorithm = AllReduceAlgorithm::kHierarchical,
     .supports_bf16_wire = true,
     .requirement = "anywhere",
     .fits = Always,
     .is_auto_candidate = IsMixed,
     .sum_f32 = HierarchicalAllReduce<float>,
     .sum_f64 = HierarchicalAllReduce<double>},
    {.algorithm = AllReduceAlgorithm::kHierarchicalTree,
     .requirement = "anywhere",
     .fits = Always,
     .is_auto_candidate = IsMixed,
     .sum_f32 = HierarchicalTreeAllReduce<float>,
     .sum_f64 = HierarchicalTreeAllReduce<double>},
    // "auto" never chooses it, because no deadline applies inside of MPI.
    {.algorithm = AllReduceAlgorithm::kMpi,
     .requirement = "ranks started by MPI",
     .fits = Always,
     .is_auto_candidate = Never,
     .sum_f32 = nullptr,
     .sum_f64 = nullptr},
};

// Returns the row of an algorithm other than kAuto and kNccl.
constexpr const AllReduceEntry& RowOf(AllReduceAlgorithm algorithm) {
  return kAllReduce[static_cast<size_t>(algorithm) - 1];
}
static_assert(std::ranges::all_of(kAllReduce, [](const AllReduceEntry& row) {
  return &RowOf(row.algorithm) == &row;
}));

// Throws UsageError if the algorithm does not fit the hosts. kAuto always does.
void RequireFits(AllReduceAlgorithm algorithm, const Topology& topology);

// Returns the algorithms among which kAuto chooses; at least one.
std::vector<AllReduceAlgorithm> AutoCandidates(const Topology& topology);

}  // namespace carole::collectives
