// Diagnostics: what a rank tells the others about itself, and what it measures in its collectives.
// Stall reports, traces and the search for stragglers are built on it. Nothing here moves data of a
// training.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace carole::collectives {

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

// The kinds of collective operations.
enum class Operation : uint8_t {
  kAllReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kShift,
  kBarrier,
  kAllocate,
  kShutdown  // the communicator's destructor
};
std::string_view Name(Operation operation);  // "all_reduce", …

// A completed operation, for traces. Times are this rank's steady clock.
struct CollectiveRecord {
  using Time = std::chrono::steady_clock::time_point;

  Operation operation = Operation::kBarrier;
  std::string_view what;       // Tag::what; valid only during the observer's call
  std::string_view algorithm;  // name of an AllReduceAlgorithm; "" unless it is an all-reduce
  int64_t step = 0;
  int32_t bucket = 0;
  size_t bytes = 0;  // of this rank's range
  Time start;        // this rank was ready: all earlier operations were complete
  Time all_arrived;  // all ranks were ready and their headers matched
  Time end;
};

// How long this rank waited since the last TakeWaitStats().
struct WaitStats {
  // Seconds from this rank's arrival to the arrival of the last rank, in all-reduces of host memory
  // and before replays of device work. In all-reduces of device memory the device waits and not
  // the host, so they do not count.
  double waited_seconds = 0;
  // Estimated seconds that the ring all-reduces would take if every link were as fast as the link
  // from the left neighbor. Measured in the first turn of each ring.
  double link_seconds = 0;
};

class Diagnostics {
 public:
  virtual ~Diagnostics() = default;

  virtual int rank() const = 0;

  // Announces what this rank is doing from now on, for stall reports. Cheap. Call it from one
  // thread, which may be any thread.
  virtual void SetPhase(RankPhase phase, int64_t step) = 0;

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
};

}  // namespace carole::collectives
