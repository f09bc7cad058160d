// Communicator: the collectives that training needs, among `size` ranks, on ranges of memory.
//
// Backends: local/ (ranks are threads of one process: tests, and one process alone), mpi/
// (processes). Memory of GPUs is summed by nccl/ under the same contract (device_sums.h).
//
// Contract
//   - Every rank calls the same operations in the same order with the same count and tag. Ranks
//     compare (sequence number, operation, count, type, algorithm, tag) before a sum is believed; a
//     difference throws CommError that names both ranks and both values.
//   - Asynchronous operations run on the communicator's own thread, in the order of the calls; call
//     from one thread. The memory must stay alive and untouched until Wait() returned. Several may
//     be in flight.
//   - No wait lasts forever: after options.deadline_seconds Wait() throws CommError that names
//     operation, tag and the ranks that have not come. After any CommError the communicator is
//     unusable.
//   - All ranks end with bitwise the same result.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/device_sums.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

// What each rank sends in a ring's all-reduce, of the bytes that it sums: the "bus bandwidth" of
// NCCL's tests counts these.
constexpr double AllReduceShare(int ranks) { return 2.0 * (ranks - 1) / ranks; }

// What an operation is for: compared between ranks, and named in errors and stall reports.
struct Tag {
  std::string_view what =
      "";  // "gradients", "weights", … ; must outlive the operation (use literals)
  int64_t step = 0;
  int32_t bucket = 0;
  uint64_t plan = 0;  // hash of the bucket plan, or 0
  // Fp32 may travel as options.wire_dtype: gradients, whose rounding averages out. A moving average
  // would stand still where its changes are smaller than a rounding.
  bool may_round = false;
};

// An asynchronous operation in flight. Wait() at most once from one thread; an error of the
// operation is thrown there.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void Wait() = 0;
  virtual bool Done() const = 0;
};

// Memory that collectives reduce fastest, for instance a window shared by the ranks of a host. Used
// and destroyed before its communicator; shared memory goes back to the system when the
// communicator ends.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
};

// What a rank is doing: named in the stall reports of those who wait for it.
enum class RankPhase : int32_t {
  kStarting,
  kInput,
  kForward,
  kBackward,
  kSums,  // waiting for the sums of buckets
  kOptimizer,
  kEvaluation,
  kSaving,
};
std::string_view Name(RankPhase phase);

// An operation that is through, for traces. Times are this rank's steady clock.
struct CollectiveRecord {
  using Time = std::chrono::steady_clock::time_point;

  std::string_view operation;  // "all_reduce", … ; a literal
  std::string_view what;       // of the tag; valid during the call
  std::string_view algorithm;  // row of algorithms.h, or "": not an all-reduce
  int64_t step = 0;
  int32_t bucket = 0;
  size_t bytes = 0;  // of this rank's range
  Time start;        // it was this operation's turn
  Time agreed;       // all ranks had come
  Time end;
};

// How this rank waited since the statistics were last taken.
struct WaitStats {
  double waited_seconds = 0;  // at all-reduces, for ranks that came later
  double link_seconds = 0;    // of rings, at the pace at which the left neighbor's first turn came
};

struct CommunicatorOptions {
  double warn_seconds = 10;          // a stall is reported in the log after this long
  double deadline_seconds = 60;      // and ends the operation with CommError after this long
  std::string all_reduce = "auto";   // name of a row of algorithms.h, or "auto"
  std::string choices_path;          // of the file that keeps what "auto" found; "": it is not kept
  std::string wire_dtype = "fp32";   // of what may be rounded, between hosts: "fp32" or "bf16"
  size_t segment_bytes = 512 << 10;  // of a message in flight
  int ranks_per_host = 0;  // for tests: pretend that hosts hold so many ranks; 0: as it is
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // among the ranks of this machine
  virtual int local_size() const = 0;
  virtual int num_hosts() const = 0;                      // whose ranks share memory
  virtual const std::string& NameOf(int rank) const = 0;  // "rank 3 (host)"

  // Zeroed, aligned to Buffer::kAlignment. Collective: every rank asks for the same size.
  virtual std::unique_ptr<Arena> AllocateArena(size_t bytes) = 0;

  // Sums `data` over all ranks, in place; in its own precision, unless tag.may_round lets fp32
  // travel rounded.
  virtual std::unique_ptr<Pending> AllReduceAsync(std::span<float> data, const Tag& tag) = 0;
  virtual std::unique_ptr<Pending> AllReduceAsync(std::span<double> data, const Tag& tag) = 0;

  // in: size() pieces of out.size() elements; out: this rank's piece of the sum over all ranks. The
  // two do not overlap; what `in` holds afterwards is not specified. Always exact on the wire.
  virtual void ReduceScatter(std::span<float> in, std::span<float> out, const Tag& tag) = 0;
  virtual void ReduceScatter(std::span<double> in, std::span<double> out, const Tag& tag) = 0;

  // The root's bytes on every rank.
  virtual void Broadcast(std::span<std::byte> data, int root, const Tag& tag) = 0;

  // out holds size() pieces of in.size() bytes, rank by rank.
  virtual void AllGather(std::span<const std::byte> in, std::span<std::byte> out,
                         const Tag& tag) = 0;

  virtual void Barrier(const Tag& tag) = 0;

  // The all-reduce algorithm from the next call on: the same on every rank, as part of the
  // contract. Throws UsageError when there is no such row or it does not fit the hosts. With "auto"
  // the first sum of each type and of each power of two of its bytes measures the rows that fit, on
  // all ranks together, and the fastest is kept, for later jobs too (auto_choice.h).
  virtual void SetAllReduce(std::string_view name) = 0;
  virtual std::string_view all_reduce() const = 0;  // the row set, or "auto"
  // The row that sums of so many bytes use; "auto" before the first of them.
  virtual std::string_view all_reduce_of(size_t bytes) const = 0;

  // Says what this rank is doing from now on. Cheap; any one thread.
  virtual void SetPhase(RankPhase phase, int64_t step) = 0;

  // From now on all-reduces of memory that `sums` holds are theirs, by the same contract: started
  // and awaited in the order of the device's stream, the host waits for nothing but the start. No
  // other operation takes such memory. (device_sums.h)
  virtual void SetDeviceSums(std::unique_ptr<DeviceSums> sums) = 0;

  // Sums of the device that its stream recorded, all at once: calls `launch`, which enqueues them
  // again, when all ranks have come to this with the same tag; waits for no sum, whose ends are
  // watched all the same. Nothing else may be in flight. (src/backend/backend.h: Recording)
  virtual void Replay(const std::function<void()>& launch, const Tag& tag) = 0;

  // Gets every operation that is through (on a device: under way), on the thread that ran it, which
  // it must not hold up; set it while nothing is in flight. None by default; none with one rank.
  virtual void SetObserver(std::function<void(const CollectiveRecord&)> observer) = 0;

  // Seconds to add to this rank's steady clock for rank 0's; 0 on rank 0's host. Collective,
  // measured at each call; the error is at most half a round trip of the network.
  virtual double ClockOffset() = 0;

  // What has been gathered since the last call.
  virtual WaitStats TakeWaitStats() = 0;

  // Ends the whole job at once with this exit code (MPI_Abort; local: every rank's operations
  // throw).
  virtual void Abort(int exit_code) = 0;

  // Start and wait. Cheaper than the two calls when nothing else is in flight: no change of
  // threads.
  virtual void AllReduce(std::span<float> data, const Tag& tag) = 0;
  virtual void AllReduce(std::span<double> data, const Tag& tag) = 0;
};

// How many ranks say yes.
inline int CountRanks(Communicator& communicator, bool yes, const Tag& tag) {
  double count = yes ? 1 : 0;
  communicator.AllReduce(std::span(&count, 1), tag);
  return static_cast<int>(count);
}

// What each rank says, rank by rank; as many values of each.
template <typename T>
std::vector<T> AllGatherValues(Communicator& communicator, std::span<const T> mine,
                               const Tag& tag) {
  std::vector<T> all(mine.size() * static_cast<size_t>(communicator.size()));
  communicator.AllGather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), tag);
  return all;
}

template <typename T>
std::vector<T> AllGather(Communicator& communicator, const T& mine, const Tag& tag) {
  return AllGatherValues(communicator, std::span(&mine, 1), tag);
}

}  // namespace carole::collectives
