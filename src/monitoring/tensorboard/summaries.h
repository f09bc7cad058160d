// Writes event files for TensorBoard. Tags are those of TF-Slim if it has a tag for the value.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/events/event_writer.h"
#include "io/events/histogram.h"
#include "io/preprocessing/preprocessing.h"
#include "src/train/loop/training_callback.h"

namespace carole::monitoring {

struct SummaryOptions {
  std::string folder;       // created if missing
  int64_t every_steps = 0;  // steps between records; 0: use every_secs
  double every_secs = 600;
  int64_t max_steps = 0;  // 0: no limit
  int num_images = 3;     // images of the batch to record, after augmentation; 0: none
  int image_size = 0;
  int channels = 0;
  const io::PreprocessingEntry* preprocessing = nullptr;
  // Record histograms of weights, gradients and end points. End points must be outputs of the
  // graph.
  bool histograms = false;
  std::vector<io::HyperParameter> parameters;
};

// Writes the summaries; for rank 0 only. Values are recorded after the first and the last step,
// when the run stops, and in between after every_steps or every_secs. Results of evaluations are
// always recorded, in folder/eval. OnTrainBegin() throws DiskError if the event file cannot be
// created. Later write errors cause a warning; the run continues without these values.
class Summaries final : public train::TrainingCallback {
 public:
  // `step` must outlive this, and must not run after this is destroyed.
  Summaries(SummaryOptions options, train::TrainStep& step);
  ~Summaries() override;  // records that the run failed, unless OnTrainEnd() was called

  void OnTrainBegin(const train::RunState& state) override;
  void OnStepBegin(int64_t step) override;
  void OnStepEnd(const train::AppliedStep& step) override;
  void OnEvaluationEnd(int64_t step, const train::Metrics& metrics, double seconds) override;
  void OnTrainEnd(const train::RunState& state, bool finished) override;

 private:
  using Clock = std::chrono::steady_clock;

  bool IsLast(int64_t step) const { return options_.max_steps > 0 && step == options_.max_steps; }
  void WriteOrWarn(const std::function<void()>& write);
  void ReadEndPoints();
  void Write(const train::AppliedStep& step);
  void WriteScalars(const train::AppliedStep& step);
  void WriteImages(const train::AppliedStep& step);
  void WriteVariables(int64_t step, double loss_scale);
  void WriteActivations(int64_t step);

  const SummaryOptions options_;
  train::TrainStep& step_;
  std::unique_ptr<io::EventWriter> events_;
  std::unique_ptr<io::EventWriter> evaluations_;  // in folder/eval; null before the first one
  Clock::time_point last_;
  bool is_open_ = false;    // between OnTrainBegin() and OnTrainEnd()
  bool warned_ = false;     // about write errors
  int64_t first_step_ = 0;  // first step of the file; steps in a file must not decrease
  int64_t due_step_ = 0;    // the step to record when it ends
  int64_t last_step_ = 0;
  int64_t steps_since_ = 0;
  int64_t images_since_ = 0;
  double exposed_ms_since_ = 0;
  double eval_seconds_since_ = 0;  // not part of the steps' time
  struct Activation {
    io::Histogram histogram;
    double sparsity = 0;  // fraction of values that are exactly 0
  };
  std::map<std::string, Activation> activations_;  // of the current step, by end point
};

}  // namespace carole::monitoring
