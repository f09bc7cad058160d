// Decides when a run saves by the clock, and says in the log what a save costs and what a loss
// would cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "io/checkpoint/checkpoint_writer.h"
#include "src/train/loop/save_clock.h"
#include "src/train/loop/training_callback.h"

namespace carole::train {

// The time that a run has to save after a signal, before it is killed.
struct GracePeriod {
  double seconds = 0;  // 0: unknown
  std::string source;  // what sets it, for messages
};

struct SaveScheduleOptions {
  double interval_secs = 600;
  bool is_auto = false;  // chooses the interval by the measured cost of a save
  // The time between two failures of one host, in seconds; is_auto uses it.
  double mean_time_between_failures = 30 * 86400.0;
  GracePeriod grace;
};

// One object on each rank. One thread uses it. Only the object of the rank that writes checkpoints
// decides and logs.
class SaveSchedule {
 public:
  // `num_hosts`: how many hosts may fail. `clock` must outlive this.
  SaveSchedule(SaveScheduleOptions options, int num_hosts, SaveClock& clock)
      : options_(std::move(options)), num_hosts_(num_hosts), clock_(clock) {}

  // Says that the run begins, or continues from a checkpoint, at this step: nothing can be lost.
  void Begin(int64_t step);

  // Chooses the interval by the cost of a save, if it is automatic. Logs it if it has changed
  // noticeably.
  void ChooseInterval();
  // Returns true if a save is due by the clock.
  bool IsDue() const;
  // Returns the seconds from the end of a save to the next one.
  double interval() const { return interval_; }

  // A save begins, or has ended: training continues, though the file may not be complete.
  // EndSave() returns the seconds in between.
  void BeginSave();
  double EndSave(int64_t step);
  // Says which checkpoint was written last (CheckpointWriter::last_written()). It may be called
  // again with the same one.
  void SetWritten(const std::optional<io::WrittenCheckpoint>& written);
  // Logs what the last save cost, and what a loss would have cost before it.
  void LogSave();

  // Returns what would be lost if the job died at this step.
  UnsavedWork Unsaved(int64_t step) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Save {
    int64_t step = 0;
    Clock::time_point start, end;
    UnsavedWork at_risk;  // what a loss would have cost when the save began
  };

  void WarnOfShortGrace();

  const SaveScheduleOptions options_;
  const int num_hosts_;
  SaveClock& clock_;
  double interval_ = 0;
  double logged_interval_ = 0;
  bool has_warned_ = false;
  Save last_;     // the last save
  Save durable_;  // the last one that is on the disk
};

}  // namespace carole::train
