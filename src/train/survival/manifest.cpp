#include "src/train/survival/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "src/core/error.h"
#include "src/train/survival/shared_memory.h"

namespace carole::train {
namespace {

[[noreturn]] void RefuseDamage() {
  throw DataError("[survivors] shared memory: the description of the state is damaged");
}

// Writes numbers, texts and lists of them one after the other.
class Writer {
 public:
  void operator()(uint64_t value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void operator()(int64_t value) { (*this)(static_cast<uint64_t>(value)); }
  void operator()(int value) { (*this)(static_cast<int64_t>(value)); }
  void operator()(bool value) { (*this)(static_cast<uint64_t>(value)); }
  void operator()(const std::string& value) {
    (*this)(static_cast<uint64_t>(value.size()));
    text_ += value;
  }
  template <typename T>
  void operator()(const std::vector<T>& list) {
    (*this)(static_cast<uint64_t>(list.size()));
    for (const T& value : list) (*this)(value);
  }

  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// Reads what Writer has written.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  void operator()(uint64_t& value) { std::memcpy(&value, Take(sizeof value), sizeof value); }
  void operator()(int64_t& value) { value = static_cast<int64_t>(Number()); }
  void operator()(int& value) { value = static_cast<int>(Number()); }
  void operator()(bool& value) { value = Number() != 0; }
  void operator()(std::string& value) {
    const uint64_t size = Number();
    value.assign(reinterpret_cast<const char*>(Take(size)), size);
  }
  template <typename T>
  void operator()(std::vector<T>& list) {
    const uint64_t size = Number();
    if (size > bytes_.size()) RefuseDamage();
    list.resize(size);
    for (T& value : list) (*this)(value);
  }

 private:
  uint64_t Number() {
    uint64_t value = 0;
    (*this)(value);
    return value;
  }
  const std::byte* Take(uint64_t size) {
    if (size > bytes_.size()) RefuseDamage();
    const std::byte* begin = bytes_.data();
    bytes_ = bytes_.subspan(size);
    return begin;
  }

  std::span<const std::byte> bytes_;
};

// Visits the members of the manifest in one order, for Writer and Reader.
template <typename Archive, typename Tensor>
void VisitTensor(Archive& archive, Tensor& tensor, std::vector<int64_t>& dims) {
  archive(tensor.name);
  archive(dims);
  archive(tensor.trainable);
  archive(tensor.is_slot);
  archive(tensor.position);
  archive(tensor.saved_position);
  archive(tensor.swapped_position);
  archive(tensor.bytes);
  archive(tensor.order_index);
}

template <typename Archive, typename Facts>
void VisitFacts(Archive& archive, Facts& facts) {
  archive(facts.train_dir);
  archive(facts.work_dir);
  archive(facts.run_id);
  archive(facts.rank);
  archive(facts.size);
  archive(facts.keep_checkpoints);
  archive(facts.changing_attribute);
}

void WriteFacts(Writer& write, const RunFacts& facts) {
  VisitFacts(write, facts);
  std::vector<std::string> texts;
  for (const auto& [name, value] : facts.attributes) texts.insert(texts.end(), {name, value});
  write(texts);
  write(facts.keras.has_value());
  const io::KerasModel keras = facts.keras.value_or(io::KerasModel());
  write(keras.config);
  write(keras.layers);
  write(keras.training_config);
}

RunFacts ReadFacts(Reader& read) {
  RunFacts facts;
  VisitFacts(read, facts);
  std::vector<std::string> texts;
  read(texts);
  for (size_t i = 0; i + 1 < texts.size(); i += 2) facts.attributes[texts[i]] = texts[i + 1];
  bool has_keras = false;
  io::KerasModel keras;
  read(has_keras);
  read(keras.config);
  read(keras.layers);
  read(keras.training_config);
  if (has_keras) facts.keras = std::move(keras);
  return facts;
}

// Adds the tensors of a replica to a manifest.
class ManifestMaker {
 public:
  ManifestMaker(const ReplicaView& replica, const std::byte* saved_statistics,
                std::span<const int> frozen, const SharedMemory& memory)
      : replica_(replica), saved_(saved_statistics), frozen_(frozen), memory_(memory) {}

  Manifest Make(const RunFacts& facts) {
    manifest_.facts = facts;
    const auto& [store, optimizer, averages, loss_scale] = replica_;
    const int count = static_cast<int>(store.variables().size());
    for (int v = 0; v < count; ++v) {
      orders_.push_back(manifest_.orders.size());
      manifest_.orders.push_back(FindElementOrder(store.backend(), store.variables()[v]));
      AddVariable(v);
    }
    for (int v = 0; v < count; ++v) {
      for (size_t s = 0; store.variables()[v].trainable && s < optimizer.slots().size(); ++s)
        AddSlot(v, "/" + optimizer.slots()[s].name, optimizer.slot(static_cast<int>(s)), nullptr);
    }
    for (int v = 0; averages != nullptr && v < count; ++v) {
      if (Slice(v).model_variable) AddSlot(v, kMovingAverageSuffix, ShadowOf(v), store.base_of(v));
    }
    for (const auto& scalar : optimizer.scalars()) manifest_.scalar_names.push_back(scalar.name);
    if (loss_scale != nullptr) {
      for (const auto& scalar : loss_scale->scalars())
        manifest_.scalar_names.push_back(scalar.name);
    }
    if (manifest_.scalar_names.size() > StateRecord::kMaxScalars)
      throw ConfigError("[survivors] state: the optimizer has too many scalars");
    return std::move(manifest_);
  }

 private:
  const VariableSlice& Slice(int v) const { return replica_.store.variables()[v]; }

  uint64_t PositionIn(const std::byte* arena, int v) const {
    const std::byte* begin = arena + Slice(v).offset * static_cast<int64_t>(sizeof(float));
    const auto position = memory_.PositionOf(begin);
    if (!position) {
      throw ConfigError(
          fmt::format("[survivors] {}: does not lie in shared memory", Slice(v).name));
    }
    return *position;
  }

  const std::byte* ShadowOf(int v) const {
    return replica_.moving_averages->shadow(Slice(v).trainable ? 0 : 1).data();
  }

  ManifestTensor Describe(int v, const std::string& suffix, const std::byte* arena) const {
    return {.name = Slice(v).name + suffix,
            .tf_shape = Slice(v).tf_shape,
            .position = PositionIn(arena, v),
            .bytes = static_cast<uint64_t>(Slice(v).count) * sizeof(float),
            .order_index = orders_[static_cast<size_t>(v)]};
  }

  void AddVariable(int v) {
    ManifestTensor tensor = Describe(v, "", replica_.store.base_of(v));
    tensor.trainable = Slice(v).trainable;
    const bool has_saved = !Slice(v).trainable && std::ranges::count(frozen_, v) == 0;
    if (has_saved) tensor.saved_position = PositionIn(saved_, v);
    if (replica_.moving_averages != nullptr && Slice(v).model_variable)
      tensor.swapped_position = PositionIn(ShadowOf(v), v);
    manifest_.tensors.push_back(std::move(tensor));
  }

  // `swapped`: the arena that holds the values of this slot while averages and weights are
  // exchanged; null: the slot stays where it is.
  void AddSlot(int v, const std::string& suffix, const std::byte* arena, const std::byte* swapped) {
    ManifestTensor tensor = Describe(v, suffix, arena);
    tensor.is_slot = true;
    if (swapped != nullptr) tensor.swapped_position = PositionIn(swapped, v);
    manifest_.tensors.push_back(std::move(tensor));
  }

  const ReplicaView& replica_;
  const std::byte* saved_;
  std::span<const int> frozen_;
  const SharedMemory& memory_;
  std::vector<size_t> orders_;  // of each variable: index into Manifest::orders
  Manifest manifest_;
};

// Returns the elements of the tensor in the shared memory. Throws DataError if it does not fit.
std::span<const float> FindTensor(const ManifestTensor& tensor, const StateRecord& record,
                                  std::span<const std::byte> memory) {
  uint64_t position = tensor.position;
  if (record.statistics_are_saved && tensor.saved_position != 0) position = tensor.saved_position;
  if (record.averages_are_swapped && tensor.swapped_position != 0)
    position = tensor.swapped_position;
  if (position % sizeof(float) != 0 || position > memory.size() ||
      tensor.bytes > memory.size() - position)
    RefuseDamage();
  return {reinterpret_cast<const float*>(memory.data() + position), tensor.bytes / sizeof(float)};
}

}  // namespace

std::string Serialize(const Manifest& manifest) {
  Writer write;
  WriteFacts(write, manifest.facts);
  write(static_cast<uint64_t>(manifest.orders.size()));
  for (const ElementOrder& order : manifest.orders) {
    write(order.plain_strides);
    write(order.steps);
  }
  write(static_cast<uint64_t>(manifest.tensors.size()));
  for (const ManifestTensor& tensor : manifest.tensors) {
    std::vector<int64_t> dims(tensor.tf_shape.dims().begin(), tensor.tf_shape.dims().end());
    VisitTensor(write, tensor, dims);
  }
  write(manifest.scalar_names);
  return write.Take();
}

Manifest ParseManifest(std::span<const std::byte> bytes) {
  Reader read(bytes);
  Manifest manifest{.facts = ReadFacts(read), .orders = {}, .tensors = {}, .scalar_names = {}};
  uint64_t count = 0;
  read(count);
  if (count > bytes.size()) RefuseDamage();
  manifest.orders.resize(count);
  for (ElementOrder& order : manifest.orders) {
    read(order.plain_strides);
    read(order.steps);
  }
  read(count);
  if (count > bytes.size()) RefuseDamage();
  manifest.tensors.resize(count);
  for (ManifestTensor& tensor : manifest.tensors) {
    std::vector<int64_t> dims;
    VisitTensor(read, tensor, dims);
    if (dims.size() > Shape::kMaxRank || tensor.order_index >= manifest.orders.size())
      RefuseDamage();
    tensor.tf_shape = Shape(dims);
  }
  read(manifest.scalar_names);
  return manifest;
}

Manifest MakeManifest(const ReplicaView& replica, const std::byte* saved_statistics,
                      std::span<const int> frozen, const RunFacts& facts,
                      const SharedMemory& memory) {
  if (replica.store.dtype() != DType::kF32)
    throw ConfigError("[survivors] state: its weights are not fp32");
  return ManifestMaker(replica, saved_statistics, frozen, memory).Make(facts);
}

io::Checkpoint MakeCheckpoint(const Manifest& manifest, const StateRecord& record,
                              std::span<const std::byte> memory) {
  io::Checkpoint checkpoint{.attributes = manifest.facts.attributes, .keras = manifest.facts.keras};
  StoreProgress(record.progress, checkpoint);
  if (const auto text = record.FindText(); text && !text->empty())
    checkpoint.attributes[manifest.facts.changing_attribute] = *text;
  for (const ManifestTensor& tensor : manifest.tensors) {
    const std::span<const float> arena = FindTensor(tensor, record, memory);
    const ElementOrder& order = manifest.orders[tensor.order_index];
    auto& list = tensor.is_slot ? checkpoint.slots : checkpoint.variables;
    list.push_back({.name = tensor.name,
                    .shape = tensor.tf_shape,
                    .data = {},
                    .trainable = tensor.trainable,
                    .read = [arena, &order] { return ReadElements(arena, order); }});
  }
  if (record.num_scalars != static_cast<int32_t>(manifest.scalar_names.size())) RefuseDamage();
  for (size_t i = 0; i < manifest.scalar_names.size(); ++i)
    checkpoint.slots.push_back({.name = manifest.scalar_names[i],
                                .shape = {},
                                .data = {static_cast<float>(record.scalars[i])}});
  return checkpoint;
}

bool VariablesAreFinite(const io::Checkpoint& checkpoint) {
  return std::ranges::all_of(checkpoint.variables, [](const io::CheckpointVariable& variable) {
    if (!variable.trainable) return true;
    const std::vector<float> values = variable.read();
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
  });
}

}  // namespace carole::train
