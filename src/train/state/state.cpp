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
  std::vector<float> values(static_cast<size_t>(store.places()[variable].tf_shape.size()));
  store.ReadFrom(arena, variable, std::span<float>(values));
  return values;
}

int NumVariables(const VariableStore& store) { return static_cast<int>(store.places().size()); }

// An arena of either dtype, on the host, as the floats that its bytes make.
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

// Of a variable, whose arena depends on whether it is trainable.
std::byte* ShadowArena(const optim::MovingAverages& averages, const VariableSlice& place) {
  return averages.shadow(place.trainable ? 0 : 1).data();
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
  for (const VariableSlice& p : store.places()) specs.push_back({p.name, p.tf_shape});
  return specs;
}

// Takes it out, so that those are left that nobody wants.
std::span<const float> TakeSlot(Named& slots, const std::string& path, const std::string& name,
                                const Shape& shape) {
  const auto slot = slots.extract(name);
  if (slot.empty() || !(slot.mapped()->shape == shape)) {
    throw DataError(fmt::format(
        "[train] {}: slot {} does not fit: got {}, want {}; resume with the --optimizer, "
        "--trainable_scopes and --moving_average_decay of the command that wrote it, or start in "
        "another --train_dir",
        path, name, slot.empty() ? "none" : slot.mapped()->shape.ToString(), shape.ToString()));
  }
  return slot.mapped()->data;
}

// They will not be in the next checkpoint.
void TellDropped(const Named& slots, const std::string& path, const VariableStore& store) {
  std::vector<std::string> names;
  for (const auto& [name, slot] : slots) {
    if (store.Find(name.substr(0, name.rfind('/'))) >= 0) names.push_back(name);
  }
  if (names.empty()) return;
  std::ranges::sort(names);
  LogWarning("train",
             "{}: {} slots are dropped, since --optimizer, --trainable_scopes and "
             "--moving_average_decay ask for none of them now: {}",
             path, names.size(), JoinFirst(names, 3));
}

void RestoreSlots(Named& slots, const std::string& path, const ReplicaView& replica) {
  optim::Optimizer& optimizer = replica.optimizer;
  for (int v = 0; v < NumVariables(replica.store); ++v) {
    const VariableSlice& p = replica.store.places()[v];
    for (size_t s = 0; p.trainable && s < optimizer.slots().size(); ++s) {
      const std::span<const float> values =
          TakeSlot(slots, path, p.name + "/" + optimizer.slots()[s].name, p.tf_shape);
      replica.store.WriteTo(optimizer.slot(static_cast<int>(s)), v, values);
    }
  }
  for (const optim::OptimizerScalar& scalar : optimizer.scalars())
    optimizer.SetScalar(scalar.name, TakeSlot(slots, path, scalar.name, {})[0]);
}

// Where the run has kept no averages so far, they begin with what the variables are.
void RestoreShadows(Named& slots, const std::string& path, const ReplicaView& replica) {
  const auto& places = replica.store.places();
  if (std::none_of(places.begin(), places.end(), [&](const VariableSlice& p) {
        return slots.contains(p.name + kAverageSuffix);
      })) {
    LogInfo("train", "{} holds no moving averages: they begin with its weights", path);
    return replica.averages->Reset();
  }
  for (int v = 0; v < NumVariables(replica.store); ++v) {
    const VariableSlice& p = places[v];
    const std::span<const float> values =
        TakeSlot(slots, path, p.name + kAverageSuffix, p.tf_shape);
    replica.store.WriteTo(ShadowArena(*replica.averages, p), v, values);
  }
}

// A run that had none begins with the first.
void RestoreLossScale(const Named& slots, LossScale& loss_scale) {
  for (const optim::OptimizerScalar& scalar : loss_scale.scalars()) {
    const auto found = slots.find(scalar.name);
    if (found != slots.end() && found->second->data.size() == 1)
      loss_scale.SetScalar(scalar.name, found->second->data[0]);
  }
}

// `path` is for error texts. Throws DataError naming the variables that do not fit; the store may
// then be half overwritten.
void RestoreVariables(const io::Checkpoint& checkpoint, const std::string& path,
                      VariableStore& store) {
  io::CheckCompatible(checkpoint, SpecsOf(store), path);
  const Named variables = ByName(checkpoint.variables);
  for (int v = 0; v < NumVariables(store); ++v)
    store.Write(v, variables.at(store.places()[v].name)->data);
}

// As Restore() takes it: slots are what has no variable's name. The seed and the place in the data
// are not in it.
io::Checkpoint ReadForeign(const io::WeightsReader& file, const VariableStore& store) {
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

io::Checkpoint MakeSnapshot(const ReplicaView& replica, const RunState& state,
                            const std::map<std::string, std::string>& attributes,
                            SnapshotKind kind) {
  const auto& [store, optimizer, averages, loss_scale] = replica;
  io::Checkpoint snapshot{.variables = {},
                          .slots = {},
                          .step = state.step,
                          .epoch = state.epoch,
                          .position = state.position,
                          .seed = state.seed,
                          .attributes = attributes};
  if (state.skipped != io::SkippedRecords{}) snapshot.attributes[kSkipped] = ToText(state.skipped);
  const auto add = [&, &from = store](std::vector<io::CheckpointVariable>& to, int v,
                                      const std::string& suffix, const std::byte* arena) {
    const VariableSlice& p = from.places()[v];
    to.push_back({.name = p.name + suffix, .shape = p.tf_shape, .data = {}});
    auto read = [&from, arena, v] { return ReadValues(from, arena, v); };
    if (kind == SnapshotKind::kLive) {
      to.back().read = read;
    } else {
      to.back().data = read();
    }
  };
  for (int v = 0; v < NumVariables(store); ++v) {
    const VariableSlice& p = store.places()[v];
    add(snapshot.variables, v, "", store.base_of(v));
    snapshot.variables.back().trainable = p.trainable;
    for (size_t s = 0; p.trainable && s < optimizer.slots().size(); ++s)
      add(snapshot.slots, v, "/" + optimizer.slots()[s].name, optimizer.slot(static_cast<int>(s)));
  }
  for (int v = 0; averages != nullptr && v < NumVariables(store); ++v)
    add(snapshot.slots, v, kAverageSuffix, ShadowArena(*averages, store.places()[v]));
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
  if (replica.averages != nullptr) RestoreShadows(slots, path, replica);
  if (replica.loss_scale != nullptr) RestoreLossScale(slots, *replica.loss_scale);
  TellDropped(slots, path, replica.store);
  return {.step = checkpoint.step,
          .epoch = checkpoint.epoch,
          .position = checkpoint.position,
          .seed = checkpoint.seed,
          .skipped = ReadSkipped(checkpoint.attributes)};
}

std::optional<io::LoadedCheckpoint> ReadLatestForeign(const std::string& folder, uint64_t seed,
                                                      const VariableStore& store) {
  const auto file = io::TryOpenWeights(folder);
  if (file == nullptr) return std::nullopt;
  if (!file->step()) {
    LogWarning("train",
               "{}: has no global_step, so it is no run that could go on; --checkpoint_path "
               "would begin with its weights",
               file->path());
    return std::nullopt;
  }
  LogInfo("train", "{} does not tell its place in the data: an epoch begins", file->path());
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
  const auto& [store, optimizer, averages, loss_scale] = replica;
  communicator.Broadcast(std::as_writable_bytes(std::span(&state, 1)), 0, {.what = "run state"});
  BroadcastVariables(communicator, store);
  for (size_t s = 0; s < optimizer.slots().size(); ++s) {
    ShareArena(communicator,
               View(store, optimizer.slot(static_cast<int>(s)), optimizer.slot_bytes()), "slots");
  }
  for (size_t i = 0; averages != nullptr && i < averages->num_arenas(); ++i) {
    const std::span<std::byte> shadow = averages->shadow(i);
    ShareArena(communicator, View(store, shadow.data(), shadow.size()), "averages");
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
