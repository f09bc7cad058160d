// The replica of one rank: a rank's copy of the net, made from its graph for a backend. It consists
// of the compiled plan, weights, gradients and optimizer.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/full_communicator.h"
#include "src/graph/graph.h"
#include "src/graph/plan/executable.h"
#include "src/optim/moving_averages.h"
#include "src/optim/optimizer.h"
#include "src/train/state/loss_scale.h"
#include "src/train/state/state.h"
#include "src/train/step/step_options.h"

namespace carole::train {

// Owns the replica. ReplicaView (state.h) holds references to its parts.
class Replica {
 public:
  // `graph` holds the forward part and the losses; the constructor fuses and differentiates it.
  // Backend and communicator must outlive this. Collective. Throws as TrainStep's constructor does.
  Replica(std::unique_ptr<Graph> graph, const Backend& backend,
          collectives::FullCommunicator& communicator, const StepOptions& options);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // The parts that a checkpoint stores.
  ReplicaView view() { return {*store, *optimizer, moving_averages.get(), &loss_scale}; }

  // Returns the part of the regularization loss that comes from frozen variables. They do not
  // change, so it is computed once.
  double FrozenLoss();
  // The factor of L2 regularization in the loss.
  double loss_weight_decay() const { return weight_decay_; }

  // Returns the variables without a gradient, as indexes into the store, that are equal on all
  // ranks: the running statistics only if ranks average them.
  std::vector<int> EqualStatistics(const StepOptions& options) const;

  const std::unique_ptr<Graph> graph;
  const std::vector<int> frozen;  // frozen variables, as indexes into the store
  std::unique_ptr<Executable> executable;
  // Null if the gradients are in memory of the backend.
  std::unique_ptr<collectives::CommArena> gradients;
  std::unique_ptr<VariableStore> store;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::MovingAverages> moving_averages;  // null if none are kept
  LossScale loss_scale;

 private:
  void MakeStore(const Backend& backend, collectives::FullCommunicator& communicator,
                 const StepOptions& options);
  void CheckLayouts(collectives::Communicator& communicator) const;
  void CheckSchedule(collectives::Communicator& communicator) const;
  void MakeOptimizer(const Backend& backend, const StepOptions& options);
  void MakeAverages(const Backend& backend, double decay);

  const double weight_decay_;
  std::optional<double> frozen_loss_;
};

}  // namespace carole::train
