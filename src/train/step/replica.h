// The replica of one rank, made for a backend from the graph of a net: plan, weights, gradients,
// optimizer.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/communicator.h"
#include "src/graph/executable.h"
#include "src/graph/graph.h"
#include "src/optim/moving_averages.h"
#include "src/optim/optimizer.h"
#include "src/train/state/loss_scale.h"
#include "src/train/state/state.h"
#include "src/train/step/step_options.h"

namespace carole::train {

// References to it: ReplicaView (state.h).
class Replica {
 public:
  // `graph`: forward part and losses; it is fused and differentiated here. Backend and communicator
  // outlive this. Collective. Throws as TrainStep does.
  Replica(std::unique_ptr<Graph> graph, const Backend& backend,
          collectives::Communicator& communicator, const StepOptions& options);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Over frozen variables, which would be trainable: their share of the regularization loss.
  double FrozenLoss();

  const std::unique_ptr<Graph> graph;
  const std::vector<int> frozen;  // indexes into the store's places
  std::unique_ptr<Executable> executable;
  std::unique_ptr<collectives::Arena> gradients;  // null where a device holds them
  std::unique_ptr<VariableStore> store;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::MovingAverages> averages;  // null where none are kept
  LossScale loss_scale;

 private:
  void MakeStore(const Backend& backend, collectives::Communicator& communicator,
                 const StepOptions& options);
  void CheckLayouts(collectives::Communicator& communicator) const;
  void CheckSchedule(collectives::Communicator& communicator) const;
  void MakeOptimizer(const Backend& backend, const StepOptions& options);
  void MakeAverages(const Backend& backend, double decay);

  const double weight_decay_;
  std::optional<double> frozen_loss_;
};

}  // namespace carole::train
