// The kernels of a step or micro-batch, recorded once and replayed in every one after: the host has
// one call to make where a device would wait for hundreds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "collectives/communicator.h"
#include "src/backend/backend.h"

namespace carole::train {

class StepReplay {
 public:
  // Both outlive this. has_sums: ranks sum in between, so that all have to come to it.
  StepReplay(const Backend& backend, collectives::Communicator& communicator, bool has_sums)
      : backend_(backend), communicator_(communicator), has_sums_(has_sums) {}

  // Runs what `enqueue` runs, which is the same each time (Backend::Record), sums on the device
  // included. `may_record`: nothing but its kernels matters; asked once, and recorded only where
  // that is so on all ranks. Collective.
  void Run(const std::function<void()>& enqueue, bool may_record, int64_t step);

  int64_t replays() const { return replays_; }

  // In the first runs libraries load what they need.
  static constexpr int kRunsBefore = 3;

 private:
  void Record(const std::function<void()>& enqueue);

  const Backend& backend_;
  collectives::Communicator& communicator_;
  const bool has_sums_;
  int runs_ = 0;  // not replayed
  std::unique_ptr<Recording> recording_;
  int64_t replays_ = 0;
};

}  // namespace carole::train
