// Event files for TensorBoard, with TF-Slim's tags where it has them.
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
  std::string folder;       // made when missing
  int64_t every_steps = 0;  // 0: by time
  double every_secs = 600;
  int64_t max_steps = 0;  // 0: no end
  int num_images = 3;     // of the batch, as the net gets them; 0: none
  int image_size = 0;
  int channels = 0;
  const io::PreprocessingEntry* preprocessing = nullptr;
  bool histograms = false;  // of weights, their gradients, and end points, which must be outputs
  std::vector<io::HyperParameter> parameters;
};

// For rank 0. Values are recorded after the first step and the last one, when the run stops, and in
// between after every so many steps or seconds; results of evaluations always, in folder/eval.
// Throws DiskError when a run cannot begin its file; later the run goes on without what cannot be
// written.
class Summaries final : public train::TrainingCallback {
 public:
  // `step` outlives this and runs no more after it.
  Summaries(SummaryOptions options, train::TrainStep& step);
  ~Summaries() override;  // records that the run failed, unless it has ended

  void Started(const train::RunState& state) override;
  void StepBegins(int64_t step) override;
  void StepEnded(const train::AppliedStep& step) override;
  void Evaluated(int64_t step, const train::Metrics& metrics, double seconds) override;
  void Ended(const train::RunState& state, bool finished) override;

 private:
  using Clock = std::chrono::steady_clock;

  bool IsLast(int64_t step) const { return options_.max_steps > 0 && step == options_.max_steps; }
  void Try(const std::function<void()>& write);
  void ReadEndPoints();
  void Write(const train::AppliedStep& step);
  void WriteScalars(const train::AppliedStep& step);
  void WriteImages(const train::AppliedStep& step);
  void WriteVariables(int64_t step, double loss_scale);
  void WriteActivations(int64_t step);

  const SummaryOptions options_;
  train::TrainStep& step_;
  std::unique_ptr<io::EventWriter> events_;
  std::unique_ptr<io::EventWriter> evaluations_;  // in folder/eval, from the first one on
  Clock::time_point last_;
  bool is_open_ = false;    // between Started() and Ended()
  bool warned_ = false;     // that the disk refuses them
  int64_t first_step_ = 0;  // of the file, in which steps do not descend
  int64_t due_step_ = 0;    // is recorded when it ends
  int64_t last_step_ = 0;
  int64_t steps_since_ = 0;
  int64_t images_since_ = 0;
  double exposed_ms_since_ = 0;
  double eval_seconds_since_ = 0;  // are not the steps'
  struct Activation {
    io::Histogram histogram;
    double sparsity = 0;  // share of exact zeros
  };
  std::map<std::string, Activation> activations_;  // of this step, by end point
};

}  // namespace carole::monitoring
