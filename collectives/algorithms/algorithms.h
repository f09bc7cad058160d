// The all-reduce algorithms by name, and the plans that they run. ALGORITHMS.md says which wins
// when.
//
// To add one: write it in its own .cpp as a function of (Exchange&, std::span<T>), declare it here,
// add a row. It sums in place over all ranks, with the same bits on each; messages are cut into
// segment_bytes; Transport and NodeGroup keep the deadlines. Only a row with `rounds` reads
// Exchange::wire; the others send fp32 as it is.
#pragma once

#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/transport/node_group.h"
#include "collectives/transport/transport.h"
#include "src/core/dtype.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

inline constexpr size_t kInFlight = 4;  // messages under way, each way

// Elements [begin, begin + count) of a range.
struct Piece {
  size_t begin = 0;
  size_t count = 0;
  bool operator==(const Piece&) const = default;
};

// Part `index` of `count` elements split as evenly as can be into `parts`; the first parts are one
// longer.
Piece SplitEvenly(size_t count, size_t parts, size_t index);

// Ranks that exchange messages, and which of them this rank is.
struct Members {
  std::vector<int> ranks;
  int index = 0;

  // This rank's neighbors on the ring of all members.
  int left() const { return ranks[(index + ranks.size() - 1) % ranks.size()]; }
  int right() const { return ranks[(index + 1) % ranks.size()]; }
};

// Which ranks share a host. Hosts are numbered by their lowest rank; local ranks ascend with ranks.
struct Topology {
  int rank = 0;
  std::vector<int> host_of;             // (size) host of each rank
  std::vector<std::vector<int>> hosts;  // ranks of each host, ascending
  int local_rank = 0;
  // Among the ranks of this machine: of this host, or of several where these cannot share memory.
  int machine_rank = 0, machine_size = 1;

  int size() const { return static_cast<int>(host_of.size()); }
  int host() const { return host_of[rank]; }
  const std::vector<int>& neighbors() const { return hosts[host()]; }  // ranks of this host
  int local_size() const { return static_cast<int>(neighbors().size()); }
  bool shares_memory() const { return machine_size == local_size(); }  // with all of its machine
  // Rings among hosts run side by side, ring i joining local rank i of every host.
  int num_rails() const;
  bool has_even_hosts() const;   // each holds as many ranks
  Members AllRanks() const;      // in their order
  Members Counterparts() const;  // this local rank's of all hosts, which must have one
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

// All-reduce of `count` elements on a ring of `size` members: size-1 turns of reduce-scatter, after
// which this member holds the sum of chunk index+1, and size-1 of all-gather.
RingPlan PlanRing(size_t count, int size, int index, size_t segment_elements);

// What an algorithm works with. All ranks run the same operation, agreed on before (engine.cpp).
struct Exchange {
  Topology topology;
  Transport* transport = nullptr;
  NodeGroup* node = nullptr;
  Watch* watch = nullptr;
  size_t segment_bytes = 0;
  DType wire = DType::kF32;  // of this operation's fp32 between hosts: kF32 or kBF16
  std::vector<std::byte*>
      peers;       // where this range lies in each local rank's arena; empty: outside of arenas
  Buffer scratch;  // received segments, kept between operations
  double link_seconds = 0;  // WaitStats::link_seconds

  // At least so many elements of scratch.
  template <typename T>
  T* Scratch(size_t count) {
    if (scratch.size() < count * sizeof(T)) scratch = Buffer(count * sizeof(T));
    return reinterpret_cast<T*>(scratch.data());
  }
};

// Each sums `data` over `members`, in place.
template <typename T>
void RingSum(Exchange& x, const Members& members, std::span<T> data);
template <typename T>
void TreeSum(Exchange& x, const Members& members, std::span<T> data);
// RingSum's stand-in when fp32 travels as bf16.
void Bf16Sum(Exchange& x, const Members& members, std::span<float> data);

// Sums small ranges of one host's ranks that all have shown each other when they compared: every
// rank adds everything for itself, so nobody waits again. The bits are those of shared memory.
bool FitsInline(const Topology& topology, size_t bytes);
template <typename T>
void SumInlined(Exchange& x, std::span<T> data);

// in: size() pieces of out.size() elements, destroyed; out: this rank's piece of their sum.
template <typename T>
void ReduceScatterPieces(Exchange& x, std::span<T> in, std::span<T> out);
// As above among members alone, by messages.
template <typename T>
void RingReduceScatter(Exchange& x, const Members& members, std::span<T> in, std::span<T> out);

// out holds size() pieces of in.size() bytes, rank by rank.
void AllGatherBytes(Exchange& x, std::span<const std::byte> in, std::span<std::byte> out);

// The root's bytes to all.
void BroadcastBytes(Exchange& x, std::span<std::byte> data, int root);

// The rows' functions: sum `data` over all ranks, in place.
template <typename T>
void RingAllReduce(Exchange& x, std::span<T> data);
template <typename T>
void TreeAllReduce(Exchange& x, std::span<T> data);
template <typename T>
void HierarchicalAllReduce(Exchange& x, std::span<T> data);
template <typename T>
void HierarchicalTreeAllReduce(Exchange& x, std::span<T> data);

struct AllReduceEntry {
  std::string_view name;
  std::string_view fits_where;  // words for errors
  bool (*fits)(const Topology&);
  bool (*may_win)(const Topology&);              // whether `auto` tries it
  bool rounds = false;                           // between hosts, as Exchange::wire says
  void (*sum_f32)(Exchange&, std::span<float>);  // null: the backend's own
  void (*sum_f64)(Exchange&, std::span<double>);
};

inline bool IsOneHost(const Topology& t) { return t.hosts.size() == 1; }
inline bool IsOneRankPerHost(const Topology& t) {
  return !IsOneHost(t) && static_cast<int>(t.hosts.size()) == t.size();
}
inline bool IsMixed(const Topology& t) { return !IsOneHost(t) && !IsOneRankPerHost(t); }
inline bool Always(const Topology&) { return true; }
inline bool Never(const Topology&) { return false; }

// Among the ranks of one host the hierarchical algorithms are the shared-memory one: their rings
// and trees have one member.
inline constexpr AllReduceEntry kAllReduce[] = {
    {.name = "ring",
     .fits_where = "anywhere",
     .fits = Always,
     .may_win = IsOneRankPerHost,
     .rounds = true,
     .sum_f32 = RingAllReduce<float>,
     .sum_f64 = RingAllReduce<double>},
    {.name = "tree",
     .fits_where = "anywhere",
     .fits = Always,
     .may_win = IsOneRankPerHost,
     .sum_f32 = TreeAllReduce<float>,
     .sum_f64 = TreeAllReduce<double>},
    {.name = "shared_memory",
     .fits_where = "ranks of one host",
     .fits = IsOneHost,
     .may_win = IsOneHost,
     .sum_f32 = HierarchicalAllReduce<float>,
     .sum_f64 = HierarchicalAllReduce<double>},
    {.name = "hierarchical",
     .fits_where = "anywhere",
     .fits = Always,
     .may_win = IsMixed,
     .rounds = true,
     .sum_f32 = HierarchicalAllReduce<float>,
     .sum_f64 = HierarchicalAllReduce<double>},
    {.name = "hierarchical_tree",
     .fits_where = "anywhere",
     .fits = Always,
     .may_win = IsMixed,
     .sum_f32 = HierarchicalTreeAllReduce<float>,
     .sum_f64 = HierarchicalTreeAllReduce<double>},
    // Never chosen by itself: no deadline reaches into it.
    {.name = "mpi",
     .fits_where = "ranks started by MPI",
     .fits = Always,
     .may_win = Never,
     .sum_f32 = nullptr,
     .sum_f64 = nullptr},
};
inline constexpr size_t kAutoRow = std::size(kAllReduce);  // stands for "auto"
inline constexpr size_t kDeviceRow = kAutoRow + 1;         // DeviceSums

constexpr std::string_view RowName(size_t row) {
  if (row == kDeviceRow) return "nccl";
  return row < kAutoRow ? kAllReduce[row].name : "auto";
}

// Row of the algorithm, kAutoRow for "auto". Throws UsageError if there is none of the name or it
// does not fit.
size_t FindAllReduce(std::string_view name, const Topology& topology);

// The rows among which "auto" chooses; at least one.
std::vector<size_t> AutoCandidates(const Topology& topology);

}  // namespace carole::collectives
