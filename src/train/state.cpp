#include "src/train/state.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <unordered_map>

#include "collectives/replicas.h"
#include "src/core/error.h"

namespace carole::train {
namespace {

using Named = std::unordered_map<std::string, const io::CheckpointVariable*>;

Named ByName(const std::vector<io::CheckpointVariable>& variables) {
  Named named;
  for (const io::CheckpointVariable& v : variables) named[v.name] = &v;
  return named;
}

std::vector<float> ReadValues(const VariableStore& store, const std::byte* arena, int variable) {
  std::vector<float> values(static_cast<size_t>(store.places()[variable].tf_shape.size()));
  store.ReadFrom(arena, variable, std::span<float>(values));
  return values;
}

int NumVariables(const VariableStore& store) { return static_cast<int>(store.places().size()); }

// Any arena of either dtype as the floats that its bytes make.
std::span<float> AsFloats(std::byte* base, size_t bytes) {
  return {reinterpret_cast<float*>(base), bytes / sizeof(float)};
}

std::span<float> WeightBits(const VariableStore& store) {
  return AsFloats(store.weights_base(),
                  static_cast<size_t>(store.trainable_count()) * SizeOf(store.dtype()));
}

size_t StatisticsBytes(const VariableStore& store) {
  int64_t count = 0;
  for (const VariablePlace& p : store.places()) count += p.trainable ? 0 : p.count;
  return static_cast<size_t>(count) * SizeOf(store.dtype());
}

}  // namespace

io::Checkpoint MakeSnapshot(const VariableStore& store, const optim::Optimizer& optimizer,
                            const RunState& state,
                            const std::map<std::string, std::string>& attributes) {
  io::Checkpoint snapshot{.variables = {},
                          .slots = {},
                          .step = state.step,
                          .epoch = state.epoch,
                          .position = state.position,
                          .seed = state.seed,
                          .attributes = attributes};
  for (int v = 0; v < NumVariables(store); ++v) {
    const VariablePlace& p = store.places()[v];
    snapshot.variables.push_back({.name = p.name,
                                  .shape = p.tf_shape,
                                  .data = ReadValues(store, store.base_of(v), v),
                                  .trainable = p.trainable});
    for (size_t s = 0; p.trainable && s < optimizer.slots().size(); ++s) {
      snapshot.slots.push_back({.name = p.name + "/" + optimizer.slots()[s].name,
                                .shape = p.tf_shape,
                                .data = ReadValues(store, optimizer.slot(static_cast<int>(s)), v)});
    }
  }
  for (const optim::OptimizerScalar& scalar : optimizer.scalars()) {
    snapshot.slots.push_back(
        {.name = scalar.name, .shape = {}, .data = {static_cast<float>(scalar.value)}});
  }
  return snapshot;
}

void RestoreVariables(const io::Checkpoint& checkpoint, const std::string& path,
                      VariableStore& store) {
  std::vector<io::VariableSpec> expected;
  for (const VariablePlace& p : store.places()) expected.push_back({p.name, p.tf_shape});
  io::CheckCompatible(checkpoint, expected, path);
  const Named variables = ByName(checkpoint.variables);
  for (int v = 0; v < NumVariables(store); ++v)
    store.Write(v, variables.at(store.places()[v].name)->data);
}

RunState Restore(const io::Checkpoint& checkpoint, const std::string& path, VariableStore& store,
                 optim::Optimizer& optimizer) {
  RestoreVariables(checkpoint, path, store);
  const Named slots = ByName(checkpoint.slots);
  auto find = [&](const std::string& name, const Shape& shape) -> const std::vector<float>& {
    const auto it = slots.find(name);
    if (it == slots.end() || !(it->second->shape == shape)) {
      throw DataError(fmt::format(
          "[train] {}: slot {} does not fit: got {}, want {}; resume with the --optimizer that "
          "the run began with, or start in another --train_dir",
          path, name, it == slots.end() ? "none" : it->second->shape.ToString(), shape.ToString()));
    }
    return it->second->data;
  };
  for (int v = 0; v < NumVariables(store); ++v) {
    const VariablePlace& p = store.places()[v];
    for (size_t s = 0; p.trainable && s < optimizer.slots().size(); ++s) {
      const auto& values = find(p.name + "/" + optimizer.slots()[s].name, p.tf_shape);
      store.WriteTo(optimizer.slot(static_cast<int>(s)), v, std::span<const float>(values));
    }
  }
  for (const optim::OptimizerScalar& scalar : optimizer.scalars())
    optimizer.SetScalar(scalar.name, find(scalar.name, {})[0]);
  return {.step = checkpoint.step,
          .epoch = checkpoint.epoch,
          .position = checkpoint.position,
          .seed = checkpoint.seed};
}

void ShareFromRank0(collectives::Communicator& communicator, VariableStore& store,
                    optim::Optimizer& optimizer, RunState& state) {
  communicator.Broadcast(std::as_writable_bytes(std::span(&state, 1)), 0, {.what = "run state"});
  collectives::BroadcastAndVerify(communicator, WeightBits(store));
  const size_t statistics_bytes = StatisticsBytes(store);
  if (statistics_bytes > 0) {
    collectives::BroadcastAndVerify(
        communicator, AsFloats(store.statistics_base(), statistics_bytes), "statistics");
  }
  for (size_t s = 0; s < optimizer.slots().size(); ++s) {
    collectives::BroadcastAndVerify(
        communicator, AsFloats(optimizer.slot(static_cast<int>(s)), optimizer.slot_bytes()),
        "slots");
  }
  for (optim::OptimizerScalar scalar : optimizer.scalars()) {
    communicator.Broadcast(std::as_writable_bytes(std::span(&scalar.value, 1)), 0,
                           {.what = "optimizer"});
    optimizer.SetScalar(scalar.name, scalar.value);
  }
}

bool WeightsAreFinite(const VariableStore& store) {
  auto finite = [](auto weights) {
    return std::all_of(weights.begin(), weights.end(), [](auto w) { return std::isfinite(w); });
  };
  return store.dtype() == DType::kF64 ? finite(store.weights<double>())
                                      : finite(store.weights<float>());
}

void VerifyWeights(collectives::Communicator& communicator, const VariableStore& store,
                   int64_t step) {
  collectives::VerifyReplicas(communicator, WeightBits(store), "weights", step);
}

}  // namespace carole::train
