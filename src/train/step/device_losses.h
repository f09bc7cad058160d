// The losses of a step where a device has them: so it finds out by itself whether the step is
// finite, on all ranks alike. Private to TrainStep.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"
#include "src/graph/executable.h"
#include "src/graph/graph.h"
#include "src/optim/optimizer.h"

namespace carole::train {

class DeviceLosses {
 public:
  // All outlive this; the graph's losses are among its outputs.
  DeviceLosses(const Graph& graph, const Executable& executable, const Backend& backend,
               collectives::Communicator& communicator);

  void BeginStep() { is_begun_ = false; }
  // Adds those of the micro-batch that was run last.
  void Collect();
  // Lets the optimizer look at the sums over ranks. Collective.
  void Inspect(optim::Optimizer& optimizer, int64_t step);

 private:
  const Graph& graph_;
  const Executable& executable_;
  const Backend& backend_;
  collectives::Communicator& communicator_;
  DeviceMemory sums_;  // a float for each
  bool is_begun_ = false;
};

}  // namespace carole::train
