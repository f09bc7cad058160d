// Finds the straggler: the rank that slows down all others, and the reason.
//
// Ranks wait for each other in every reduction. The rank that waits least arrives last. It is a
// straggler if that costs the others more than 5 % of a step. The reason is the part that exceeds
// the median rank's most: input, compute, or the network link of the rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "collectives/communicator.h"
#include "collectives/diagnostics.h"

namespace carole::train {

// Average milliseconds per step of one rank. Trivially copyable, as ranks exchange it.
struct RankTimes {
  double step = 0;
  double input = 0;    // waiting for batches and copying them to the backend
  double compute = 0;  // forward, backward, optimizer
  double waited = 0;   // in reductions, for ranks that arrived later
  double link = 0;     // what the reductions would take at the speed of this rank's network link
};

struct Straggler {
  int rank = -1;    // -1: there is no straggler
  std::string why;  // for the log
};

// Returns the slowest rank if it costs the others more than 5 % of a step. times[r] belongs to
// rank r.
Straggler FindStraggler(std::span<const RankTimes> times);

// Collects the times of this rank and reports stragglers in the log of rank 0. One object on each
// rank; the training thread uses it.
class StragglerDetector {
 public:
  // Both references must outlive this. Time that ranks waited before this call does not count.
  StragglerDetector(collectives::Communicator& communicator, collectives::Diagnostics& diagnostics)
      : communicator_(communicator), diagnostics_(diagnostics) {
    diagnostics.TakeWaitStats();
  }

  // Adds the times of one step. `times.waited` and `times.link` are filled in here. Every 50th call
  // is collective, and rank 0 logs the straggler; it repeats the same rank at most once a minute.
  void AddStep(RankTimes times, int64_t step);

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
  void Report(std::span<const RankTimes> times, int64_t step);

  collectives::Communicator& communicator_;
  collectives::Diagnostics& diagnostics_;
  RankTimes sum_;
  int num_steps_ = 0;
  int last_rank_ = -1;
  std::chrono::steady_clock::time_point last_report_;
};

}  // namespace carole::train
