// Measures how long steps and saves take. The time limit and the interval between saves follow from
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace carole::train {

// The seconds that a save takes. Trivially copyable, as it is broadcast.
struct SaveCosts {
  double pause = 0;    // for which training stops
  double durable = 0;  // from the start of the save until the checkpoint is on the disk
  bool is_measured = false;
};

// The times of the last steps and saves. One thread uses it.
class SaveClock {
 public:
  // Sets the size of the state, from which the costs are guessed until they are measured.
  void SetStateBytes(size_t bytes);

  void AddStep(double seconds);
  // Adds a save: its pause when training continues, and later the time until it was durable.
  void AddPause(double seconds);
  void AddDurable(double seconds);

  // Returns the costs to expect: the median of the last pauses, and the longest of the last times
  // until a save was durable.
  SaveCosts costs() const;
  // Takes over the costs that rank 0 has measured. For the other ranks, which write nothing.
  void Adopt(const SaveCosts& costs);
  // Returns the longest of the last steps, in seconds; 0 before the first one.
  double step_seconds() const;

  // Returns the seconds that a run may take to stop: twice a step and a save.
  double SecondsToStop() const;

 private:
  static constexpr size_t kSaves = 9, kSteps = 64;  // how many are remembered

  SaveCosts guess_;
  std::vector<double> pauses_, durables_, steps_;  // the last ones; oldest first
};

// Returns the interval between saves, in seconds, that loses the least time: a save costs
// `save_seconds`, and a failure, on average every `failure_seconds`, costs the work since the last
// save. This is Young's formula with Daly's correction. Source: J. T. Daly, A higher order estimate
// of the optimum checkpoint interval for restart dumps, FGCS 22 (2006), equation 37.
double OptimalSaveInterval(double save_seconds, double failure_seconds);

// Bounds OptimalSaveInterval(): at most an hour, at least 10 s and at least ten times a save, so
// that saving never costs more than a tenth of the time.
double BoundedSaveInterval(double save_seconds, double failure_seconds);

}  // namespace carole::train
