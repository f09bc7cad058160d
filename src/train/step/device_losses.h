// The losses of a step in device memory. The device reduces them over ranks and checks whether they
// are finite, without the host. Used only by TrainStep.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"
#include "src/graph/graph.h"
#include "src/graph/plan/executable.h"
#include "src/optim/optimizer.h"

namespace carole::train {

class DeviceLosses {
 public:
  // All arguments must outlive this. The losses of the graph must be among its outputs.
  DeviceLosses(const Graph& graph, const Executable& executable, const Backend& backend,
               collectives::Communicator& communicator);

  void BeginStep() { has_micro_batch_ = false; }
  // Adds the losses of the micro-batch that ran last.
  void Accumulate();
  // Sums the losses over ranks and lets the optimizer check them: its update is not applied if a
  // loss is not finite. Collective. Only enqueues work.
  void ReduceAndInspect(optim::Optimizer& optimizer, int64_t step);

 private:
  const Graph& graph_;
  const Executable& executable_;
  const Backend& backend_;
  collectives::Communicator& communicator_;
  DeviceMemory sums_;  // one float per loss
  bool has_micro_batch_ = false;
};

}  // namespace carole::train
