#include "src/train/step/step_replay.h"

#include <fmt/format.h>

#include "src/core/error.h"

namespace carole::train {

void StepReplay::Record(const std::function<void()>& enqueue) {
  try {
    recording_ = backend_.Record(enqueue);
  } catch (const DeviceError& error) {
    throw DeviceError(fmt::format("{}; while a step was recorded: --cuda_graph=false does without",
                                  error.what()));
  }
}

void StepReplay::Run(const std::function<void()>& enqueue, bool may_record, int64_t step) {
  if (recording_ == nullptr && runs_++ == kRunsBefore) {
    const collectives::Tag tag{.what = "recording", .step = step};
    if (CountRanks(communicator_, !may_record, tag) == 0) Record(enqueue);
  }
  if (recording_ == nullptr) return enqueue();
  const auto replay = [this] { recording_->Replay(); };
  has_sums_ ? communicator_.Replay(replay, {.what = "recorded step", .step = step}) : replay();
  ++replays_;
}

}  // namespace carole::train
