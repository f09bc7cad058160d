// The kernels of a step, recorded once and replayed in every step after: the host has one call to
// make where a device would wait for hundreds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "collectives/communicator.h"
#include "src/backend/backend.h"

namespace carole::train {

class StepReplay {
 public:
  // Both outlive this.
  StepReplay(const Backend& backend, collectives::Communicator& communicator)
      : backend_(backend), communicator_(communicator) {}

  // Runs what `enqueue` runs, which is the same in every step (Backend::Record), sums on the device
  // included. `may_record`: nothing but its kernels matters; asked once, and recorded only where
  // that is so on all ranks. Collective.
  void Run(const std::function<void()>& enqueue, bool may_record, int64_t step);

  int64_t replays() const { return replays_; }

  // In the first ones libraries load what they need.
  static constexpr int kStepsBefore = 3;

 private:
  void Record(const std::function<void()>& enqueue);

  const Backend& backend_;
  collectives::Communicator& communicator_;
  int steps_ = 0;  // not replayed
  std::unique_ptr<Recording> recording_;
  int64_t replays_ = 0;
};

}  // namespace carole::train
