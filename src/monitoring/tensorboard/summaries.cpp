#include "src/monitoring/tensorboard/summaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/monitoring/report/confusion.h"

namespace carole::monitoring {
namespace {

void AddPngImage(io::EventWriter& events, int64_t step, const std::string& tag,
                 const io::Image& image) {
  const std::string png = io::EncodePng(image.view());
  events.AddImage(
      step, tag,
      {.height = image.height, .width = image.width, .channels = image.channels, .png = png});
}

}  // namespace

Summaries::Summaries(SummaryOptions options, train::TrainStep& step)
    : options_(std::move(options)), step_(step) {
  if (!options_.histograms) return;
  step_.executable().AddObserver([this](const KernelRecord& kernel) {
    if (due_step_ > last_step_ && kernel.phase == Phase::kBackward && activations_.empty())
      ReadEndPoints();
  });
}

Summaries::~Summaries() {
  if (!is_open_ || options_.parameters.empty()) return;
  try {
    events_->AddSessionEnd(std::max(last_step_, first_step_), false);
  } catch (const std::exception& error) {
    LogError("watch", "{}", error.what());
  }
}

void Summaries::OnTrainBegin(const train::RunState& state) {
  MakeFolder("watch", options_.folder);
  first_step_ = state.step + 1;
  events_ = std::make_unique<io::EventWriter>(options_.folder, first_step_);
  if (!options_.parameters.empty()) events_->AddHyperParameters(first_step_, options_.parameters);
  events_->Flush();
  last_ = Clock::now();
  last_step_ = state.step;
  is_open_ = true;
}

// Calls `write` and turns a DiskError into a warning: a full disk must not end the run. The values
// are written later or lost. The warning is not repeated until a write succeeds.
void Summaries::WriteOrWarn(const std::function<void()>& write) {
  try {
    write();
    warned_ = false;
  } catch (const DiskError& error) {
    if (!std::exchange(warned_, true))
      LogWarning("watch", "summaries: {}; the run continues", WithoutTag(error.what()));
  }
}

// A step that is due may still be in flight when the next one begins.
void Summaries::OnStepBegin(int64_t step) {
  if (due_step_ > last_step_) return;
  const int64_t next = step + 1;
  const bool is_time = options_.every_steps > 0 ? next % options_.every_steps == 0
                                                : SecondsSince(last_) >= options_.every_secs;
  if (step == 0 || IsLast(next) || is_time) due_step_ = next;
  activations_.clear();
}

void Summaries::ReadEndPoints() {
  for (const auto& [name, value] : step_.graph().end_points()) {
    const std::vector<double> values = step_.executable().Output(value);
    const auto zeros = static_cast<double>(std::count(values.begin(), values.end(), 0.0));
    activations_[name] = {
        .histogram = io::MakeHistogram(std::vector<float>(values.begin(), values.end())),
        .sparsity = zeros / static_cast<double>(values.size())};
  }
}

void Summaries::OnStepEnd(const train::AppliedStep& step) {
  last_step_ = step.state.step;
  ++steps_since_;
  images_since_ += step.result.batch.global_valid;
  exposed_ms_since_ += step.result.exposed_communication_ms;
  if (last_step_ != due_step_ && !IsLast(last_step_) && !step.result.stop) return;
  WriteOrWarn([&] { Write(step); });
  last_ = Clock::now();
  steps_since_ = images_since_ = 0;
  exposed_ms_since_ = 0;
  eval_seconds_since_ = 0;
}

void Summaries::Write(const train::AppliedStep& step) {
  LogInfo("", "Recording summary at step {}.", step.state.step);
  WriteScalars(step);
  WriteImages(step);
  if (options_.histograms) {
    WriteVariables(step.state.step, step.result.loss_scale);
    WriteActivations(step.state.step);
  }
  events_->Flush();
}

void Summaries::WriteScalars(const train::AppliedStep& step) {
  const train::StepResult& result = step.result;
  const auto add = [&](std::string_view tag, double value) {
    events_->AddScalar(step.state.step, tag, static_cast<float>(value));
  };
  for (size_t i = 0; i < result.losses.size(); ++i)
    add(fmt::format("losses/{}/value", step_.graph().losses()[i].first), result.losses[i]);
  add("Losses/clone_loss", result.data_loss);
  add("Losses/regularization_loss", result.regularization_loss);
  add("total_loss_1", result.total_loss);
  add("train/Accuracy", result.accuracy);
  add("learning_rate", step.learning_rate);
  add("gradient_norm", result.gradient_norm);
  const double seconds = SecondsSince(last_) - eval_seconds_since_;
  const double steps_per_sec = static_cast<double>(steps_since_) / seconds;
  LogInfo("", "global_step/sec: {:.4g}", steps_per_sec);
  add("global_step/sec", steps_per_sec);
  add("images/sec", static_cast<double>(images_since_) / seconds);
  add("exposed_communication_ms", exposed_ms_since_ / static_cast<double>(steps_since_));
}

void Summaries::WriteImages(const train::AppliedStep& step) {
  const int side = options_.image_size;
  io::Image image{.height = side, .width = side, .channels = options_.channels};
  image.pixels.resize(static_cast<size_t>(side) * side * options_.channels);
  const io::Batch& batch = step.result.batch;
  const int64_t count = std::min<int64_t>(options_.num_images, batch.valid);
  for (int64_t i = 0; i < count; ++i) {
    const size_t first = i * image.pixels.size();
    if (batch.images.empty()) {
      std::copy_n(batch.pixels.begin() + first, image.pixels.size(), image.pixels.begin());
    } else {
      io::ToPixels(*options_.preprocessing, batch.images.subspan(first, image.pixels.size()),
                   options_.channels, image.pixels);
    }
    AddPngImage(*events_, step.state.step, fmt::format("input/image/{}", i), image);
  }
}

void Summaries::WriteVariables(int64_t step, double loss_scale) {
  const VariableStore& store = step_.store();
  for (size_t i = 0; i < store.variables().size(); ++i) {
    const VariableSlice& slice = store.variables()[i];
    const int variable = static_cast<int>(i);
    std::vector<double> values(static_cast<size_t>(slice.tf_shape.size()));
    const auto add = [&](const std::byte* arena, const std::string& tag, double scale) {
      store.ReadFrom(arena, variable, std::span<double>(values));
      for (double& value : values) value /= scale;
      events_->AddHistogram(step, tag, std::vector<float>(values.begin(), values.end()));
    };
    add(store.base_of(variable), slice.name, 1);
    const bool has_gradient = std::find(store.ready_order().begin(), store.ready_order().end(),
                                        variable) != store.ready_order().end();
    if (has_gradient) add(store.gradients_base(), "gradients/" + slice.name, loss_scale);
  }
}

void Summaries::WriteActivations(int64_t step) {
  for (const auto& [end_point, activation] : activations_) {
    events_->AddHistogram(step, "activations/" + end_point, activation.histogram);
    events_->AddScalar(step, "sparsity/" + end_point, static_cast<float>(activation.sparsity));
  }
}

void Summaries::OnEvaluationEnd(int64_t step, const train::Metrics& metrics, double seconds) {
  eval_seconds_since_ += seconds;
  WriteOrWarn([&] {
    if (evaluations_ == nullptr) {
      const std::string folder = options_.folder + "/eval";
      MakeFolder("watch", folder);
      evaluations_ = std::make_unique<io::EventWriter>(folder, step);
    }
    for (const auto& [tag, value] : metrics.Scalars())
      evaluations_->AddScalar(step, tag, static_cast<float>(value));
    if (metrics.num_classes() <= kMaxConfusionImageClasses)
      AddPngImage(*evaluations_, step, "eval/confusion", ConfusionImage(metrics));
    evaluations_->Flush();
  });
}

void Summaries::OnTrainEnd(const train::RunState& state, bool /*finished*/) {
  is_open_ = false;
  WriteOrWarn([&] {
    if (!options_.parameters.empty())
      events_->AddSessionEnd(std::max(state.step, first_step_), true);
    events_->Flush();
  });
}

}  // namespace carole::monitoring
