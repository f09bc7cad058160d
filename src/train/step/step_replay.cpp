#include "src/train/step/step_replay.h"

#include <fmt/format.h>

#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {

void StepReplay::Capture(const std::function<void()>& enqueue) {
  try {
    captured_ = backend_.Capture(enqueue);
  } catch (const DeviceError& error) {
    throw DeviceError(fmt::format("{}; this happened during CUDA graph capture; try {}",
                                  error.what(), Option("cuda_graph", "false")));
  }
}

void StepReplay::Run(const std::function<void()>& enqueue, bool may_capture, int64_t step) {
  if (captured_ == nullptr && runs_++ == kWarmUpRuns) {
    const collectives::Tag tag{.what = "graph capture", .step = step};
    if (CountRanks(communicator_, !may_capture, tag) == 0) Capture(enqueue);
    if (captured_ != nullptr)
      LogInfo("step", "step {}: captured as a CUDA graph; later steps replay it", step + 1);
  }
  if (captured_ == nullptr) return enqueue();
  const auto replay = [this] { captured_->Replay(); };
  has_sums_ ? device_.Replay(replay, {.what = "captured step", .step = step}) : replay();
  ++replays_;
}

}  // namespace carole::train
