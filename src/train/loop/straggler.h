// Finds the rank that holds up all others, and says why.
//
// Ranks wait for each other at every sum. Who waits least is late; if that costs more than a
// twentieth of a step, the reason is what takes longest there compared with the median rank: its
// input, its computing, or the network that leads to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "collectives/communicator.h"

namespace carole::train {

// One rank's milliseconds of a step, on average. Sent as bytes.
struct RankTimes {
  double step = 0;
  double input = 0;    // waiting for batches and copying them in
  double compute = 0;  // forward, backward, optimizer
  double waited = 0;   // at sums, for ranks that came later
  double link = 0;     // of sums, at the pace of the network that leads to it
};

struct Straggler {
  int rank = -1;  // -1: nobody is slow
  std::string why;
};

// times[r] of rank r. The slowest rank if it costs the others more than 5 % of a step.
Straggler FindStraggler(std::span<const RankTimes> times);

class StragglerWatch {
 public:
  // The communicator outlives this. What ranks waited for before does not count.
  explicit StragglerWatch(collectives::Communicator& communicator) : communicator_(communicator) {
    communicator.TakeWaitStats();
  }

  // After each step. Every 50 steps, collective: rank 0 logs who is slow; the same finding once a
  // minute. `times.waited` and `times.link` are filled in here.
  void AddStep(RankTimes times, int64_t step);

  // While it lives ranks wait for each other in what is no step: that does not count.
  class Pause {
   public:
    explicit Pause(StragglerWatch& watch) : watch_(watch) { watch_.AddWaits(); }
    ~Pause() { watch_.communicator_.TakeWaitStats(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    StragglerWatch& watch_;
  };

 private:
  void AddWaits();
  void Report(std::span<const RankTimes> times, int64_t step);

  collectives::Communicator& communicator_;
  RankTimes sum_;
  int num_steps_ = 0;
  int last_rank_ = -1;
  std::chrono::steady_clock::time_point last_report_;
};

}  // namespace carole::train
