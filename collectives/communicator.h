// Communicator: the collective operations that training needs, on ranges of memory, among all ranks
// of a job.
//
// Implementations: local/ (the ranks are threads of one process; for tests, and for a process that
// runs alone) and mpi/ (the ranks are processes). Both share the engine in engine/. GPU memory is
// reduced by nccl/ under the same rules (device_all_reduce.h).
//
// Rules for callers
//   - Every rank calls the same operations in the same order, with the same count and tag. Before
//     data moves, the ranks compare a header of the operation: sequence number, operation, count,
//     type, algorithm, address in an arena, and tag. If headers differ, every rank throws CommError
//     with the names of two ranks and both values.
//   - Asynchronous operations run on the communicator's own thread, in the order of the calls. All
//     calls come from one thread. The memory must stay alive and untouched until Wait() returns.
//     Several operations may be in flight.
//   - No wait lasts forever. After options.deadline_seconds Wait() throws CommError, which names
//     the operation, its tag and the missing ranks. The communicator is unusable after a CommError.
//   - All ranks end with bitwise identical results.
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

#include "collectives/device_all_reduce.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

// Bytes that each rank of a ring all-reduce sends, divided by the bytes of its range. NCCL's tests
// multiply with this factor to get the "bus bandwidth".
constexpr double AllReduceBusFactor(int ranks) { return 2.0 * (ranks - 1) / ranks; }

// Identifies an operation. The ranks compare tags, and errors and stall reports show them.
struct Tag {
  // Purpose of the operation, such as "gradients" or "weights". Must outlive the operation: use
  // string literals.
  std::string_view what = "";
  int64_t step = 0;
  int32_t bucket = 0;
  uint64_t plan = 0;  // hash of the bucket plan (HashOfPlan), or 0
  // Whether fp32 may travel as options.wire_dtype. True for gradients, whose rounding errors
  // average out. False for moving averages: they would stop moving once changes are smaller than
  // rounding.
  bool may_round = false;
};

// An asynchronous operation in flight.
class Pending {
 public:
  virtual ~Pending() = default;
  // Blocks until the operation is complete. Call it at most once, from one thread. Throws the
  // operation's error.
  virtual void Wait() = 0;
  // Returns whether Wait() would return at once.
  virtual bool Done() const = 0;
};

// Memory that collectives reduce fastest, such as a window shared by the ranks of a host. Ranges
// outside of arenas work too, but need extra copies. Destroy an arena before its communicator; the
// system gets shared memory back when the communicator is destroyed.
class CommArena {
 public:
  virtual ~CommArena() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;  // bytes
};

// The current activity of a rank. Stall reports of the ranks that wait for it show this.
enum class RankPhase : int32_t {
  kStarting,
  kInput,
  kForward,
  kBackward,
  kReduction,  // waits for the all-reduces of gradient buckets
  kOptimizer,
  kEvaluation,
  kSaving,
};
std::string_view Name(RankPhase phase);

// A completed operation, for traces. Times are this rank's steady clock.
struct CollectiveRecord {
  using Time = std::chrono::steady_clock::time_point;

  std::string_view operation;  // "all_reduce", … ; a literal
  std::string_view what;       // Tag::what; valid only during the observer's call
  std::string_view algorithm;  // name of a row in algorithms.h; "" unless it is an all-reduce
  int64_t step = 0;
  int32_t bucket = 0;
  size_t bytes = 0;  // of this rank's range
  Time start;        // this rank was ready: all earlier operations were complete
  Time all_arrived;  // all ranks were ready and their headers matched
  Time end;
};

// How long this rank waited since the last TakeWaitStats().
struct WaitStats {
  // Seconds in all-reduces from this rank's arrival to the arrival of the last rank.
  double waited_seconds = 0;
  // Estimated seconds that the ring all-reduces would take if every link were as fast as the link
  // from the left neighbor. Measured in the first turn of each ring.
  double link_seconds = 0;
};

struct CommunicatorOptions {
  double warn_seconds = 10;         // after this long, the log reports a stall
  double deadline_seconds = 60;     // after this long, a stalled operation throws CommError
  std::string all_reduce = "auto";  // name of a row in algorithms.h, or "auto"
  std::string choices_path;         // file that keeps the choices of "auto"; "" keeps none
  // "fp32" or "bf16": the type in which fp32 travels between hosts where Tag::may_round is set.
  std::string wire_dtype = "fp32";
  size_t segment_bytes = 512 << 10;  // size of a message in flight
  int ranks_per_host = 0;  // for tests: pretend that each host has this many ranks; 0: real hosts
};

// One rank's connection to all ranks of the job. Operations are collective: all ranks call them in
// the same order, from one thread each. They throw CommError if ranks are gone, late, or disagree.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // number of this rank among the ranks of this machine
  virtual int local_size() const = 0;  // number of ranks on this machine
  virtual int num_hosts() const = 0;   // groups of ranks that share memory
  virtual const std::string& NameOf(int rank) const = 0;  // "rank 3 (host)"

  // Returns zeroed memory, aligned to Buffer::kAlignment. Collective: every rank asks for the same
  // size.
  virtual std::unique_ptr<CommArena> AllocateArena(size_t bytes) = 0;

  // Starts the sum of `data` over all ranks, in place. Sums in the precision of `data`; fp32 may be
  // rounded on the wire if tag.may_round is set.
  virtual std::unique_ptr<Pending> AllReduceAsync(std::span<float> data, const Tag& tag) = 0;
  virtual std::unique_ptr<Pending> AllReduceAsync(std::span<double> data, const Tag& tag) = 0;

  // Sums `in` over all ranks and returns this rank's piece of the sum in `out`. `in` holds size()
  // pieces of out.size() elements; its content is unspecified afterwards. `in` and `out` must not
  // overlap. Never rounds on the wire. Blocks.
  virtual void ReduceScatter(std::span<float> in, std::span<float> out, const Tag& tag) = 0;
  virtual void ReduceScatter(std::span<double> in, std::span<double> out, const Tag& tag) = 0;

  // Copies the root's bytes to every rank. Blocks.
  virtual void Broadcast(std::span<std::byte> data, int root, const Tag& tag) = 0;

  // Gathers in.size() bytes of each rank into `out`, in the order of ranks. `out` holds size() *
  // in.size() bytes. Blocks.
  virtual void AllGather(std::span<const std::byte> in, std::span<std::byte> out,
                         const Tag& tag) = 0;

  // Returns when every rank has called it.
  virtual void Barrier(const Tag& tag) = 0;

  // Selects the all-reduce algorithm from the next call on. All ranks must select the same one; the
  // headers are compared. With "auto", the first all-reduce of each type and each power of two of
  // its bytes measures the candidate algorithms on all ranks. The fastest is kept, for later jobs
  // too (auto_choice.h). Throws UsageError if the name is unknown or does not fit the hosts.
  virtual void SetAllReduce(std::string_view name) = 0;
  virtual std::string_view all_reduce() const = 0;  // the selected algorithm, or "auto"
  // The algorithm for all-reduces of this many bytes; "auto" before the first of them.
  virtual std::string_view all_reduce_for(size_t bytes) const = 0;

  // Announces what this rank is doing from now on, for stall reports. Cheap. Call it from one
  // thread, which may be any thread.
  virtual void SetPhase(RankPhase phase, int64_t step) = 0;

  // From now on `device` performs the all-reduces of memory that it holds. They start and are
  // awaited in the order of the device's stream; the host waits only until they are enqueued. Other
  // operations do not accept device memory. (device_all_reduce.h)
  virtual void SetDeviceAllReduce(std::unique_ptr<DeviceAllReduce> device) = 0;

  // Replays captured device work that contains all-reduces. Calls `launch`, which enqueues that
  // work, once all ranks have called Replay() with the same tag. Does not wait for the all-reduces;
  // the deadline still applies to them. No other operation may be in flight.
  // (src/backend/backend.h: CapturedWork)
  virtual void Replay(const std::function<void()>& launch, const Tag& tag) = 0;

  // Sets a function that gets a record of every completed operation; of device operations, when
  // they are enqueued. It runs on the thread that ran the operation and must return quickly. Set it
  // while nothing is in flight. Default: none. A job with one rank has no records.
  virtual void SetObserver(std::function<void(const CollectiveRecord&)> observer) = 0;

  // Returns the seconds to add to this rank's steady clock to get the clock of rank 0; 0 on rank
  // 0's host. Collective; measures anew at each call. The error is at most half a network round
  // trip.
  virtual double ClockOffset() = 0;

  // Returns the statistics collected since the last call, and resets them.
  virtual WaitStats TakeWaitStats() = 0;

  // Ends the whole job at once with this exit code (MPI_Abort). With local ranks, makes every
  // rank's operations throw instead.
  virtual void Abort(int exit_code) = 0;

  // AllReduceAsync() and Wait() in one call. Cheaper when nothing else is in flight, because no
  // thread switch is needed.
  virtual void AllReduce(std::span<float> data, const Tag& tag) = 0;
  virtual void AllReduce(std::span<double> data, const Tag& tag) = 0;
};

// Returns the number of ranks for which `yes` is true. Collective.
inline int CountRanks(Communicator& communicator, bool yes, const Tag& tag) {
  double count = yes ? 1 : 0;
  communicator.AllReduce(std::span(&count, 1), tag);
  return static_cast<int>(count);
}

// Returns the values of all ranks, in the order of ranks. Every rank contributes equally many.
// Collective.
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
