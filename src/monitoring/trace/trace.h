// --trace: where the time of all ranks goes, on one clock, as a file for ui.perfetto.dev.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "src/monitoring/trace/trace_events.h"
#include "src/train/loop/training_callback.h"

namespace carole::monitoring {

struct TraceOptions {
  std::string path;
  // Updates done before the steps that are kept: the last so many, or from first_step to last_step
  // where that is not -1.
  int64_t num_steps = 100;
  int64_t first_step = 0, last_step = -1;
  bool kernels = false;  // each kernel too, by the scope of its node

  bool is_range() const { return last_step >= 0; }
};

// "100": the last 100 steps; "20:29": those from 20 to 29. Throws UsageError.
void ParseTraceSteps(const std::string& text, TraceOptions& options);

// One on each rank. Rank 0 writes the file, whole or not at all, when the range is through or, of
// the last steps, after 10 steps and whenever there are twice as many, at times when a checkpoint
// is saved, and at the end: so a run that is killed leaves one too. A disk that refuses it does not
// stop the run. At most kMaxEvents of a rank are kept.
class Trace final : public train::TrainingCallback {
 public:
  static constexpr size_t kMaxEvents = 1 << 16;

  // Both outlive this.
  Trace(TraceOptions options, train::TrainStep& step, collectives::Communicator& communicator);
  ~Trace() override;

  void Started(const train::RunState& state) override;
  void StepBegins(int64_t step) override;
  void StepEnded(const train::AppliedStep& step) override;
  void Evaluated(int64_t step, const train::Metrics& metrics, double seconds) override;
  void Saved(int64_t step, double seconds) override;
  void Ended(const train::RunState& state, bool finished) override;

 private:
  using Time = TraceEvent::Time;
  struct Recorder;

  void Enter(collectives::RankPhase phase, Time now);
  void Leave(Time now);
  void CloseStep(Time now);
  void AddKernel(const KernelRecord& kernel);
  void AddInput(const io::InputCounters& now);
  void RequireFolder() const;
  void Write();

  const TraceOptions options_;
  train::TrainStep& step_;
  collectives::Communicator& communicator_;
  // Also owned by the communicator's observer, whose thread may outlive this when the run fails.
  const std::shared_ptr<Recorder> recorder_;
  Time zero_;
  std::vector<uint16_t> kernel_names_, kernel_kinds_;  // of each step of the plan

  bool in_phase_ = false, in_step_ = false;
  collectives::RankPhase phase_ = collectives::RankPhase::kStarting;
  Time phase_start_, step_start_;
  io::InputCounters input_;

  int64_t steps_done_ = 0, next_write_ = 10, written_at_ = 0;
  bool is_written_ = false, warned_ = false, met_range_ = false;
};

}  // namespace carole::monitoring
