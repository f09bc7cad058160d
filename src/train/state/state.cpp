#include "src/train/state/state.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <unordered_map>

#include "collectives/ranks/replica_check.h"
#include "io/weights/open_weights.h"
#include "io/weights/weights_mapping.h"
#include "src/backend/host_view.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/train/state/quantization_state.h"
#include "src/train/state/run_metadata.h"

namespace carole::train {
namespace {

using Named = std::unordered_map<std::string, const io::CheckpointVariable*>;

Named ByName(const std::vector<io::CheckpointVariable>& variables) {
  Named named;
  for (const io::CheckpointVariable& v : variables) named[v.name] = &v;
  return named;
}

std::vector<float> ReadValues(const VariableStore& store, const std::byte* arena, int variable) {
  std::vector<float> values(static_cast<size_t>(store.variables()[variable].tf_shape.size()));
  store.ReadFrom(arena, variable, std::span<float>(values));
  return values;
}

int NumVariables(const VariableStore& store) { return static_cast<int>(store.variables().size()); }

// Gives the host access to an arena of the backend. The bytes of an fp64 arena are read as floats,
// too, which is fine for copies and comparisons.
HostView View(const VariableStore& store, std::byte* base, size_t bytes) {
  return {store.backend(), base, bytes};
}

HostView ViewWeights(const VariableStore& store) {
  return View(store, store.weights_base(), store.weights_bytes());
}

void ShareArena(collectives::Communicator& communicator, const HostView& view, const char* what) {
  if (view.as<float>().empty()) return;
  collectives::BroadcastAndVerify(communicator, view.as<float>(), what);
  view.Store();
}

// Returns the arena of shadows that holds this variable: 0 for trainable variables, 1 for others.
std::byte* ShadowArena(const optim::MovingAverages& moving_averages,
                       const VariableSlice& variable) {
  return moving_averages.shadow(variable.trainable ? 0 : 1).data();
}

std::string ToText(const io::SkippedRecords& skipped) {
  std::string text;
  for (const int64_t count : skipped) text += (text.empty() ? "" : " ") + std::to_string(count);
  return text;
}

io::SkippedRecords ReadSkipped(const std::map<std::string, std::string>& attributes) {
  io::SkippedRecords skipped{};
  const auto found = attributes.find(kSkipped);
  std::istringstream text(found == attributes.end() ? "" : found->second);
  for (int64_t& count : skipped) text >> count;
  return skipped;
}

std::vector<io::VariableSpec> SpecsOf(const VariableStore& store) {
  std::vector<io::VariableSpec> specs;
  for (const VariableSlice& p : store.variables()) specs.push_back({p.name, p.tf_shape});
  return specs;
}

// Removes the slot from `slots` and returns its values. What is left in the end is unused.
std::span<const float> TakeSlot(Named& slots, const std::string& path, const std::string& name,
                                const Shape& shape) {
  const auto slot = slots.extract(name);
  if (slot.empty() || !(slot.mapped()->shape == shape)) {
    throw DataError(fmt::format(
        "[train] {}: slot {} does not fit: got {}, want {}; resume with the same {}, {} and {} "
        "that wrote it, or start in another {}",
        path, name, slot.empty() ? "none" : slot.mapped()->shape.ToString(), shape.ToString(),
        Option("optimizer"), Option("trainable_scopes"), Option("moving_average_decay"),
        Option("train_dir")));
  }
  return slot.mapped()->data;
}

// Warns that these slots will not be in the next checkpoint.
void WarnAboutDroppedSlots(const Named& slots, const std::string& path,
                           const VariableStore& store) {
  std::vector<std::string> names;
  for (const auto& [name, slot] : slots) {
    if (store.Find(name.substr(0, name.rfind('/'))) >= 0) names.push_back(name);
  }
  if (names.empty()) return;
  std::ranges::sort(names);
  LogWarning("train", "{}: {} slots are dropped, as {}, {} and {} do not use them now: {}", path,
             names.size(), Option("optimizer"), Option("trainable_scopes"),
             Option("moving_average_decay"), JoinFirst(names, 3));
}

void RestoreSlots(Named& slots, const std::string& path, const ReplicaView& replica) {
  optim::Optimizer& optimizer = replica.optimizer;
  for (int v = 0; v < NumVariables(replica.store); ++v) {
    const VariableSlice& p = replica.store.variables()[v];
    for (size_t s = 0; p.trainable && s < optimizer.slots().size(); ++s) {
      const std::span<const float> values =
          TakeSlot(slots, path, p.name + "/" + optimizer.slots()[s].name, p.tf_shape);
      replica.store.WriteTo(optimizer.slot(static_cast<int>(s)), v, values);
    }
  }
  for (const optim::OptimizerScalar& scalar : optimizer.scalars())
    optimizer.SetScalar(scalar.name, TakeSlot(slots, path, scalar.name, {})[0]);
}

// Restores the moving averages. If the checkpoint has none, they start from the variables.
void RestoreShadows(Named& slots, const std::string& path, const ReplicaView& replica) {
  const auto& variables = replica.store.variables();
  if (std::none_of(variables.begin(), variables.end(), [&](const VariableSlice& p) {
        return slots.contains(p.name + kMovingAverageSuffix);
      })) {
    LogInfo("train", "{}: has no moving averages; they start from its weights", path);
    return replica.moving_averages->Reset();
  }
  for (int v = 0; v < NumVariables(replica.store); ++v) {
    const VariableSlice& p = variables[v];
    if (!p.model_variable) continue;
    const std::span<const float> values =
        TakeSlot(slots, path, p.name + kMovingAverageSuffix, p.tf_shape);
    replica.store.WriteTo(ShadowArena(*replica.moving_averages, p), v, values);
  }
}

// If the run had no loss scale so far, its initial value stays.
void RestoreLossScale(const Named& slots, LossScale& loss_scale) {
  for (const optim::OptimizerScalar& scalar : loss_scale.scalars()) {
    const auto found = slots.find(scalar.name);
    if (found != slots.end() && found->second->data.size() == 1)
      loss_scale.SetScalar(scalar.name, found->second->data[0]);
  }
}

// A net that is quantized now must have been quantized so far. One that is not quantized any more
// needs no ranges.
void CheckQuantization(const Named& found, const std::string& path, const VariableStore& store) {
  for (const VariableSlice& p : store.variables()) {
    if (p.model_variable || found.contains(p.name)) continue;
    const bool has_ranges = std::ranges::any_of(
        found, [](const auto& variable) { return IsQuantizationState(variable.first); });
    throw DataError(fmt::format(
        "[train] {}: {} is missing: {}", path, p.name,
        has_ranges ? "the run had another " + Option("quantize_delay") +
                         "; resume it with the one that it had"
                   : "the run was not quantized; to quantize it now, start a new " +
                         Option("train_dir") + " with " + Option("checkpoint_path", path)));
  }
  const auto dropped = std::ranges::count_if(found, [&](const auto& variable) {
    return IsQuantizationState(variable.first) && store.Find(variable.first) < 0;
  });
  if (dropped > 0)
    LogWarning("train", "{}: {} variables of quantization are dropped, as {} does not use them now",
               path, dropped, Option("quantize_delay"));
}

// `path` is for error messages. Throws DataError that names the variables that do not fit; the
// store may then be partly overwritten.
void RestoreVariables(const io::Checkpoint& checkpoint, const std::string& path,
                      VariableStore& store) {
  const Named variables = ByName(checkpoint.variables);
  CheckQuantization(variables, path, store);
  io::CheckCompatible(checkpoint, SpecsOf(store), path, IsQuantizationState);
  for (int v = 0; v < NumVariables(store); ++v)
    store.Write(v, variables.at(store.variables()[v].name)->data);
}

// Reads a file of another program as a checkpoint for Restore(). Tensors that are no variables of
// the net become slots. Seed and position in the data are unknown and stay 0.
io::Checkpoint ReadForeign(const io::WeightsSource& file, const VariableStore& store) {
  const io::MappedWeights mapped(file, SpecsOf(store));
  for (const std::string& line : mapped.report()) LogInfo("train", "{}: {}", file.path(), line);
  io::Checkpoint checkpoint{.step = file.step().value_or(0)};
  for (const std::string& name : mapped.names()) {
    const Shape shape = mapped.shape(name);
    std::vector<float> data(static_cast<size_t>(shape.size()));
    mapped.Read(name, data);
    auto& list = store.Find(name) >= 0 ? checkpoint.variables : checkpoint.slots;
    list.push_back({name, shape, std::move(data)});
  }
  return checkpoint;
}

}  // namespace

size_t StateBytes(const ReplicaView& replica) {
  const VariableStore& store = replica.store;
  size_t bytes = store.weights_bytes() + store.statistics_bytes() +
                 replica.optimizer.slots().size() * replica.optimizer.slot_bytes();
  for (size_t i = 0;
       replica.moving_averages != nullptr && i < replica.moving_averages->num_arenas(); ++i)
    bytes += replica.moving_averages->shadow(i).size();
  return bytes;
}

void StoreProgress(const RunState& progress, io::Checkpoint& checkpoint) {
  checkpoint.step = progress.step;
  checkpoint.epoch = progress.epoch;
  checkpoint.position = progress.position;
  checkpoint.seed = progress.seed;
  if (progress.skipped != io::SkippedRecords{})
    checkpoint.attributes[kSkipped] = ToText(progress.skipped);
}

io::Checkpoint MakeSnapshot(const ReplicaView& replica, const RunState& state,
                            const std::map<std::string, std::string>& attributes,
                            SnapshotKind kind) {
  const auto& [store, optimizer, moving_averages, loss_scale] = replica;
  io::Checkpoint snapshot{.variables = {}, .slots = {}, .attributes = attributes};
  StoreProgress(state, snapshot);
  const auto add = [&, &from = store](std::vector<io::CheckpointVariable>& to, int v,
                                      const std::string& suffix, const std::byte* arena) {
    const VariableSlice& p = from.variables()[v];
    to.push_back({.name = p.name + suffix, .shape = p.tf_shape, .data = {}});
    auto read = [&from, arena, v] { return ReadValues(from, arena, v); };
    if (kind == SnapshotKind::kLive) {
      to.back().read = read;
    } else {
      to.back().data = read();
    }
  };
  for (int v = 0; v < NumVariables(store); ++v) {
    const VariableSlice& p = store.variables()[v];
    add(snapshot.variables, v, "", store.base_of(v));
    snapshot.variables.back().trainable = p.trainable;
    for (size_t s = 0; p.trainable && s < optimizer.slots().size(); ++s)
      add(snapshot.slots, v, "/" + optimizer.slots()[s].name, optimizer.slot(static_cast<int>(s)));
  }
  for (int v = 0; moving_averages != nullptr && v < NumVariables(store); ++v) {
    if (!store.variables()[v].model_variable) continue;
    add(snapshot.slots, v, kMovingAverageSuffix,
        ShadowArena(*moving_averages, store.variables()[v]));
  }
  const auto add_scalars = [&](const std::vector<optim::OptimizerScalar>& scalars) {
    for (const auto& [name, value] : scalars)
      snapshot.slots.push_back({.name = name, .shape = {}, .data = {static_cast<float>(value)}});
  };
  add_scalars(optimizer.scalars());
  if (loss_scale != nullptr) add_scalars(loss_scale->scalars());
  return snapshot;
}

RunState Restore(const io::Checkpoint& checkpoint, const std::string& path,
                 const ReplicaView& replica) {
  RestoreVariables(checkpoint, path, replica.store);
  Named slots = ByName(checkpoint.slots);
  RestoreSlots(slots, path, replica);
  if (replica.moving_averages != nullptr) RestoreShadows(slots, path, replica);
  if (replica.loss_scale != nullptr) RestoreLossScale(slots, *replica.loss_scale);
  WarnAboutDroppedSlots(slots, path, replica.store);
  return {.step = checkpoint.step,
          .epoch = checkpoint.epoch,
          .position = checkpoint.position,
          .seed = checkpoint.seed,
          .skipped = ReadSkipped(checkpoint.attributes)};
}

std::optional<io::LoadedCheckpoint> ReadLatestForeign(const std::string& folder, uint64_t seed,
                                                      const VariableStore& store) {
  const auto file = io::TryOpenWeights(folder);
  if (file == nullptr) {
    if (const std::string unnamed = io::DescribeUnnamedCheckpoint(folder); !unnamed.empty())
      LogWarning("train", "not resumed: {}", unnamed);
    return std::nullopt;
  }
  if (!file->step()) {
    LogWarning(
        "train",
        "{}: cannot resume: the checkpoint has no global_step; use {} to start from its weights",
        file->path(), Option("checkpoint_path"));
    return std::nullopt;
  }
  LogInfo("train", "{}: has no position in the data; a new epoch begins", file->path());
  io::LoadedCheckpoint latest{file->path(), ReadForeign(*file, store)};
  latest.checkpoint.seed = seed;
  return latest;
}

void BroadcastStatistics(collectives::Communicator& communicator, const VariableStore& store) {
  if (communicator.size() == 1) return;
  ShareArena(communicator, View(store, store.statistics_base(), store.statistics_bytes()),
             "statistics");
}

void BroadcastVariables(collectives::Communicator& communicator, const VariableStore& store) {
  if (communicator.size() == 1) return;
  ShareArena(communicator, ViewWeights(store), "weights");
  BroadcastStatistics(communicator, store);
}

void BroadcastState(collectives::Communicator& communicator, const ReplicaView& replica,
                    RunState& state) {
  if (communicator.size() == 1) return;
  const auto& [store, optimizer, moving_averages, loss_scale] = replica;
  communicator.Broadcast(std::as_writable_bytes(std::span(&state, 1)), 0, {.what = "run state"});
  BroadcastVariables(communicator, store);
  for (size_t s = 0; s < optimizer.slots().size(); ++s) {
    ShareArena(communicator,
               View(store, optimizer.slot(static_cast<int>(s)), optimizer.slot_bytes()), "slots");
  }
  for (size_t i = 0; moving_averages != nullptr && i < moving_averages->num_arenas(); ++i) {
    const std::span<std::byte> shadow = moving_averages->shadow(i);
    ShareArena(communicator, View(store, shadow.data(), shadow.size()), "moving averages");
  }
  const auto share_scalars = [&](auto& owner) {
    for (optim::OptimizerScalar scalar : owner.scalars()) {
      communicator.Broadcast(std::as_writable_bytes(std::span(&scalar.value, 1)), 0,
                             {.what = "optimizer"});
      owner.SetScalar(scalar.name, scalar.value);
    }
  };
  share_scalars(optimizer);
  if (loss_scale != nullptr) share_scalars(*loss_scale);
}

bool WeightsAreFinite(const VariableStore& store) {
  auto finite = [](auto weights) {
    return std::all_of(weights.begin(), weights.end(), [](auto w) { return std::isfinite(w); });
  };
  const HostView view = ViewWeights(store);
  return store.dtype() == DType::kF64 ? finite(view.as<double>()) : finite(view.as<float>());
}

void VerifyWeights(collectives::Communicator& communicator, const VariableStore& store,
                   int64_t step) {
  if (communicator.size() == 1) return;
  collectives::VerifyReplicas(communicator, ViewWeights(store).as<float>(), "weights", step);
}

}  // namespace carole::train
