// Trace: writes what all ranks do, on one clock, to a file for ui.perfetto.dev.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/diagnostics.h"
#include "src/monitoring/trace/trace_events.h"
#include "src/train/loop/training_callback.h"

namespace carole::monitoring {

struct TraceOptions {
  std::string path;
  // Which steps the trace holds: the last num_steps steps; or, if last_step is not -1, the steps
  // from first_step to last_step. A step is numbered by the updates done before it.
  int64_t num_steps = 100;
  int64_t first_step = 0, last_step = -1;
  bool kernels = false;  // also record each kernel, with the scope of its node as name

  bool is_range() const { return last_step >= 0; }
  bool Includes(int64_t step) const {
    return !is_range() || (step >= first_step && step <= last_step);
  }
};

// Parses the option trace_steps into `options`: "100" means the last 100 steps, "20:29" the steps
// 20 to 29. Throws UsageError if the text has another form.
void ParseTraceSteps(const std::string& text, TraceOptions& options);

// Records the trace; one object on each rank. Rank 0 writes the file, completely or not at all.
// It writes a range of steps once, after its last step. It writes the last steps several times, so
// that a run that is killed leaves a trace as well. It does so after 10, 20, 40, ... steps, when a
// checkpoint is saved (at most once in num_steps steps), and at the end of the run.
// A write error causes a warning; the run continues. At most kMaxEvents events per rank are kept.
class Trace final : public train::TrainingCallback {
 public:
  static constexpr size_t kMaxEvents = 1 << 16;

  // All references must outlive this.
  Trace(TraceOptions options, train::TrainStep& step, collectives::Communicator& communicator,
        collectives::Diagnostics& diagnostics);
  ~Trace() override;

  void OnTrainBegin(const train::RunState& state) override;
  void OnStepBegin(int64_t step) override;
  void OnStepEnd(const train::AppliedStep& step) override;
  void OnEvaluationEnd(int64_t step, const train::Metrics& metrics, double seconds) override;
  void OnSave(int64_t step, double seconds) override;
  void OnTrainEnd(const train::RunState& state, bool finished) override;

 private:
  using Time = TraceEvent::Time;
  struct Recorder;

  void BeginPhase(collectives::RankPhase phase, Time now);
  void EndPhase(Time now);
  void EndStep(Time now);
  void AddKernel(const KernelRecord& kernel);
  void AddInputCounters(const io::InputCounters& now);
  void AddDeviceSpans(const std::vector<train::DeviceSpan>& spans, int64_t step);
  void RequireWritablePath() const;
  void Write();

  const TraceOptions options_;
  train::TrainStep& step_;
  collectives::Communicator& communicator_;
  collectives::Diagnostics& diagnostics_;
  // Shared with the observer of collectives, whose thread may outlive this object if the run fails.
  const std::shared_ptr<Recorder> recorder_;
  Time zero_;
  std::vector<uint16_t> kernel_names_, kernel_kinds_;  // name ids of each kernel of the plan

  bool in_phase_ = false, in_step_ = false;
  collectives::RankPhase phase_ = collectives::RankPhase::kStarting;
  Time phase_start_, step_start_;
  io::InputCounters input_;

  int64_t steps_done_ = 0, next_write_ = 10, written_at_ = 0;
  bool is_written_ = false, warned_ = false, reached_range_ = false;
};

}  // namespace carole::monitoring
