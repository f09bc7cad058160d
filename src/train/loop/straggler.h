// Finds the straggler: the rank that slows down all others, and the reason.
//
// Ranks wait for each other in every reduction. The rank that waits least arrives last. It is a
// straggler if that costs the others more than 5 % of a step, and more than 1 ms. The reason is the
// part that exceeds the median rank's most: input, compute, or the network link of the rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/diagnostics.h"
#include "src/train/loop/straggler_log.h"

namespace carole::train {

// Average milliseconds per step of one rank. Trivially copyable, as ranks exchange it.
struct RankTimes {
  double step = 0;
  double input = 0;    // waiting for batches and copying them to the backend
  double compute = 0;  // forward, backward, optimizer
  // In reductions, for ranks that arrived later. The waiting of a device includes the reductions
  // themselves, which take equally long on all ranks.
  double waited = 0;
  double link = 0;  // what the reductions would take at the speed of this rank's network link
};

// Returns the slowest rank if it costs the others more than 5 % of a step, and more than 1 ms.
// times[r] belongs to rank r.
Straggler FindStraggler(std::span<const RankTimes> times);

// Collects the times of this rank and reports stragglers in the log of rank 0. One object on each
// rank; the training thread uses it.
class StragglerDetector {
 public:
  using Clock = StragglerLog::Clock;

  // Both references must outlive this. Time that ranks waited before this call does not count.
  StragglerDetector(collectives::Communicator& communicator, collectives::Diagnostics& diagnostics,
                    std::function<Clock::time_point()> now = Clock::now)
      : communicator_(communicator), diagnostics_(diagnostics), now_(std::move(now)) {
    diagnostics.TakeWaitStats();
  }

  // Adds the times of one step. `times.waited` is that of a device; the waiting of the host is
  // added here, and `times.link` is filled in. Every 50th call is collective, and rank 0 logs
  // stragglers (StragglerLog). Returns true if it logged a line.
  bool AddStep(RankTimes times, int64_t step);

  // Returns StragglerLog::Summary() on rank 0, "" on other ranks.
  std::string Summary() const { return log_.Summary(); }

  // Excludes work between steps, such as saving and evaluation: while a Pause exists, the time that
  // ranks wait for each other does not count.
  class Pause {
   public:
    explicit Pause(StragglerDetector& watch) : watch_(watch) { watch_.AddWaitStats(); }
    ~Pause() { watch_.diagnostics_.TakeWaitStats(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    StragglerDetector& watch_;
  };

 private:
  void AddWaitStats();
  bool Report(std::span<const RankTimes> times, int64_t step);

  collectives::Communicator& communicator_;
  collectives::Diagnostics& diagnostics_;
  RankTimes sum_;
  int num_steps_ = 0;
  std::function<Clock::time_point()> now_;
  StragglerLog log_;
};

}  // namespace carole::train
