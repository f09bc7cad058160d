// CUDA graph capture of the kernels of a step or micro-batch. They are captured once and replayed
// in all later steps. A replay is one call of the host; without it, the device would wait for
// hundreds of launches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "collectives/communicator.h"
#include "collectives/device_all_reduce.h"
#include "src/backend/backend.h"

namespace carole::train {

// Runs the same work in every step: eagerly in the first steps, then as a captured graph.
class StepReplay {
 public:
  // The references must outlive this. `has_sums`: the work contains reductions over ranks, so that
  // a replay is a collective.
  StepReplay(const Backend& backend, collectives::Communicator& communicator,
             collectives::DeviceCollectives& device, bool has_sums)
      : backend_(backend), communicator_(communicator), device_(device), has_sums_(has_sums) {}

  // Runs the work that `enqueue` launches, including reductions on the device. `enqueue` must
  // launch the same work in every call (Backend::Capture). `may_capture` is true if the work has no
  // side effect on the host. It is read once; the work is captured only if it is true on all ranks.
  // Collective. Throws DeviceError if the capture fails.
  void Run(const std::function<void()>& enqueue, bool may_capture, int64_t step);

  // Number of runs that were replays.
  int64_t replays() const { return replays_; }

  // Number of eager runs before the capture. Libraries load their kernels and allocate in these.
  static constexpr int kWarmUpRuns = 3;

 private:
  void Capture(const std::function<void()>& enqueue);

  const Backend& backend_;
  collectives::Communicator& communicator_;
  collectives::DeviceCollectives& device_;
  const bool has_sums_;
  int runs_ = 0;  // eager ones
  std::unique_ptr<CapturedWork> captured_;
  int64_t replays_ = 0;
};

}  // namespace carole::train
