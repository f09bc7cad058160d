#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <isa-l/crc64.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/hdf5.h"
#include "io/checkpoint/keras_layout.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/text/parse_number.h"

namespace carole::io {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr char kWeights[] = "/model_weights";
constexpr char kState[] = "/carole";
constexpr char kAttributes[] = "/carole/attributes";
constexpr char kVariables[] = "/carole/variables";
constexpr char kSlots[] = "/carole/slots";
constexpr char kTrainingConfig[] = "training_config";

// Returns the elements of the variable. They are stored in `memory` if v.read() produces them.
std::span<const float> Elements(const CheckpointVariable& v, std::vector<float>& memory) {
  if (!v.read) return v.data;
  memory = {};  // frees the previous elements before read() allocates the next
  return memory = v.read();
}

// CRC-64/XZ over the values in the order of CHECKPOINT_FORMAT.md.
class Crc64 {
 public:
  void Add(const void* data, size_t bytes) {
    crc_ = crc64_ecma_refl(crc_, static_cast<const unsigned char*>(data), bytes);
  }
  void Add(const std::string& text) { Add(text.c_str(), text.size() + 1); }  // with its NUL
  void Add(int64_t value) { Add(&value, sizeof(value)); }
  void Add(const std::vector<CheckpointVariable>& variables) {
    Add(static_cast<int64_t>(variables.size()));
    std::vector<float> memory;
    for (const CheckpointVariable& v : variables) {
      Add(v.name);
      Add(static_cast<int64_t>(v.trainable));
      Add(static_cast<int64_t>(v.shape.rank()));
      Add(v.shape.dims().data(), v.shape.dims().size_bytes());
      const std::span<const float> elements = Elements(v, memory);
      Add(elements.data(), elements.size_bytes());
    }
  }
  uint64_t value() const { return crc_; }

 private:
  uint64_t crc_ = 0;
};

std::string DigestText(uint64_t digest) { return fmt::format("{:016x}", digest); }

// Writes the variables as layers of Keras. Returns the path of each variable's dataset.
std::vector<std::string> WriteKerasWeights(Hdf5File& file, const Checkpoint& checkpoint) {
  const std::vector<CheckpointVariable>& variables = checkpoint.variables;
  std::vector<std::string> names;
  for (const CheckpointVariable& v : variables) names.push_back(v.name);
  std::vector<std::string> paths(variables.size());
  std::vector<std::string> layer_names;
  std::vector<float> memory;
  file.CreateGroup(kWeights);
  for (const KerasLayer& layer : MapToKeras(names)) {
    const std::string group = fmt::format("{}/{}", kWeights, layer.name);
    file.CreateGroup(group);
    file.SetStringList(group, "weight_names", layer.weight_names);
    for (size_t i = 0; i < layer.variables.size(); ++i) {
      const CheckpointVariable& v = variables[layer.variables[i]];
      std::string& path = paths[layer.variables[i]];
      path = fmt::format("{}/{}", group, layer.weight_names[i]);
      file.WriteFloats(path, v.shape, Elements(v, memory));
    }
    layer_names.push_back(layer.name);
  }
  if (checkpoint.keras) {
    for (const std::string& layer : checkpoint.keras->layers)
      CAROLE_CHECK(std::ranges::count(layer_names, layer) == 1, "Keras layer {}: no weights",
                   layer);
    layer_names = checkpoint.keras->layers;
    file.SetString("/", "model_config", checkpoint.keras->config);
    if (!checkpoint.keras->training_config.empty())
      file.SetString("/", kTrainingConfig, checkpoint.keras->training_config);
  }
  file.SetStringList(kWeights, "layer_names", layer_names);
  for (const char* object : {"/", kWeights}) {
    file.SetString(object, "backend", "tensorflow");
    file.SetString(object, "keras_version", kKerasVersion);
  }
  return paths;
}

// Returns the path of each slot's dataset.
std::vector<std::string> WriteSlots(Hdf5File& file, const std::vector<CheckpointVariable>& slots) {
  std::vector<std::string> paths;
  std::vector<float> memory;
  for (const CheckpointVariable& slot : slots) {
    paths.push_back(fmt::format("{}/{}", kSlots, slot.name));
    file.WriteFloats(paths.back(), slot.shape, Elements(slot, memory));
  }
  return paths;
}

// Writes names, dataset paths and trainable marks of the variables as three parallel lists.
void WriteTable(Hdf5File& file, const std::string& group, const std::vector<std::string>& paths,
                const std::vector<CheckpointVariable>& variables) {
  std::vector<std::string> names;
  std::vector<std::string> trainable;
  for (const CheckpointVariable& v : variables) {
    names.push_back(v.name);
    trainable.emplace_back(v.trainable ? "1" : "0");
  }
  file.SetStringList(group, "names", names);
  file.SetStringList(group, "paths", paths);
  file.SetStringList(group, "trainable", trainable);
}

// A long attribute, such as the names of many classes, is split into pieces "NAME", "NAME 1", ….
constexpr size_t kPieceBytes = 60'000;
constexpr char kPieceMark = ' ';
std::string PieceName(const std::string& name, size_t i) {
  return fmt::format("{}{}{}", name, kPieceMark, i);
}

void WriteFile(const Checkpoint& checkpoint, const std::string& path) {
  Hdf5File file = Hdf5File::Create(path);
  const std::vector<std::string> paths = WriteKerasWeights(file, checkpoint);
  for (const char* group : {kState, kAttributes, kVariables, kSlots}) file.CreateGroup(group);
  WriteTable(file, kVariables, paths, checkpoint.variables);
  WriteTable(file, kSlots, WriteSlots(file, checkpoint.slots), checkpoint.slots);
  file.SetInt(kState, "format_version", kFormatVersion);
  file.SetInt(kState, "step", checkpoint.step);
  file.SetInt(kState, "epoch", checkpoint.epoch);
  file.SetInt(kState, "position", checkpoint.position);
  file.SetUnsigned(kState, "seed", checkpoint.seed);
  file.SetFixedString(kState, "digest", DigestText(checkpoint.digest));
  for (const auto& [name, value] : checkpoint.attributes) {
    file.SetFixedString(kAttributes, name, value.substr(0, kPieceBytes));
    for (size_t i = 1; i * kPieceBytes < value.size(); ++i)
      file.SetFixedString(kAttributes, PieceName(name, i),
                          value.substr(i * kPieceBytes, kPieceBytes));
  }
  file.Close();
}

[[noreturn]] void Refuse(const std::string& path, std::string_view what) {
  throw DataError(fmt::format("[io.checkpoint] {}: {}", path, what));
}

std::vector<CheckpointVariable> ReadTable(const Hdf5File& file, const std::string& group,
                                          std::vector<std::string>& paths) {
  const std::vector<std::string> names = file.GetStringList(group, "names");
  const std::vector<std::string> trainable = file.GetStringList(group, "trainable");
  paths = file.GetStringList(group, "paths");
  if (paths.size() != names.size() || trainable.size() != names.size()) {
    Refuse(file.path(),
           fmt::format("{}: lists differ in length: got {} names, {} paths and {} trainable marks, "
                       "want equal numbers",
                       group, names.size(), paths.size(), trainable.size()));
  }
  std::vector<CheckpointVariable> variables;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!paths[i].starts_with('/')) {
      Refuse(file.path(),
             fmt::format("{}: relative path: got '{}', want an absolute path", group, paths[i]));
    }
    variables.push_back(
        {.name = names[i], .shape = file.ShapeOf(paths[i]), .trainable = trainable[i] == "1"});
  }
  return variables;
}

// Reads the datasets at `paths`, or lets `read` do it. Many paths may lead to the same dataset.
// Together they must not need more bytes than the file has, or a small file could fill the memory.
void ReadData(const std::shared_ptr<const Hdf5File>& opened, ElementsIn place,
              std::vector<CheckpointVariable>& variables, const std::vector<std::string>& paths,
              uint64_t& bytes_left) {
  const Hdf5File& file = *opened;
  for (size_t i = 0; i < variables.size(); ++i) {
    const uint64_t bytes = static_cast<uint64_t>(variables[i].shape.size()) * sizeof(float);
    if (bytes > bytes_left)
      Refuse(file.path(), "the variables need more bytes than the file has; the file is damaged");
    bytes_left -= bytes;
    if (place == ElementsIn::kFile) {
      variables[i].read = [opened, path = paths[i]] { return opened->ReadFloats(path); };
    } else {
      variables[i].data = file.ReadFloats(paths[i]);
    }
  }
}

uint64_t ParseDigest(const Hdf5File& file) {
  const std::string text = file.GetString(kState, "digest");
  const auto digest = ParseNumber<uint64_t>(text, 16);
  if (!digest || text.size() != 16)
    Refuse(file.path(), fmt::format("bad digest: got '{}', want 16 hexadecimal digits", text));
  return *digest;
}

// Reads the header, and the elements unless `place` is nullopt.
Checkpoint Read(const std::string& path, std::optional<ElementsIn> place) {
  const auto opened = std::make_shared<const Hdf5File>(Hdf5File::Open(path));
  const Hdf5File& file = *opened;
  if (!file.Exists(kState)) {
    Refuse(path, "is not a checkpoint of carole: this HDF5 file has no group 'carole'");
  }
  if (const int64_t version = file.GetInt(kState, "format_version"); version != kFormatVersion) {
    Refuse(path, fmt::format("unknown format version: got {}, want {}; use the version of carole "
                             "that wrote it",
                             version, kFormatVersion));
  }
  std::vector<std::string> paths;
  std::vector<std::string> slot_paths;
  Checkpoint checkpoint{.variables = ReadTable(file, kVariables, paths),
                        .slots = ReadTable(file, kSlots, slot_paths),
                        .step = file.GetInt(kState, "step"),
                        .epoch = file.GetInt(kState, "epoch"),
                        .position = file.GetInt(kState, "position"),
                        .seed = file.GetUnsigned(kState, "seed"),
                        .digest = ParseDigest(file)};
  const auto [least, most] = std::minmax({checkpoint.step, checkpoint.epoch, checkpoint.position});
  if (least < 0 || most > kMaxStep) {
    Refuse(path, fmt::format("progress out of range: got step {}, epoch {}, position {}, want 0 to "
                             "{}",
                             checkpoint.step, checkpoint.epoch, checkpoint.position, kMaxStep));
  }
  for (const std::string& name : file.AttributeNames(kAttributes)) {
    if (name.find(kPieceMark) != std::string::npos) continue;
    std::string& value = checkpoint.attributes[name] = file.GetString(kAttributes, name);
    for (size_t i = 1; file.HasAttribute(kAttributes, PieceName(name, i)); ++i)
      value += file.GetString(kAttributes, PieceName(name, i));
  }
  if (place) {
    uint64_t bytes_left = file.bytes();
    ReadData(opened, *place, checkpoint.variables, paths, bytes_left);
    ReadData(opened, *place, checkpoint.slots, slot_paths, bytes_left);
  }
  return checkpoint;
}

}  // namespace

uint64_t ComputeDigest(const Checkpoint& checkpoint) {
  Crc64 crc;
  crc.Add(checkpoint.variables);
  crc.Add(checkpoint.slots);
  crc.Add(checkpoint.step);
  crc.Add(checkpoint.epoch);
  crc.Add(checkpoint.position);
  crc.Add(static_cast<int64_t>(checkpoint.seed));
  for (const auto& [name, value] : checkpoint.attributes) {
    crc.Add(name);
    crc.Add(value);
  }
  return crc.value();
}

void WriteCheckpoint(Checkpoint& checkpoint, const std::string& path) {
  checkpoint.digest = ComputeDigest(checkpoint);
  const std::string temporary = path + kTemporarySuffix;
  try {
    WriteFile(checkpoint, temporary);
    CommitSyncedFile("io.checkpoint", temporary, path);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

std::string ReadKerasTrainingConfig(const std::string& path) {
  const Hdf5File file = Hdf5File::Open(path, HeapStrings::kAllow);
  return file.HasAttribute("/", kTrainingConfig) ? file.GetString("/", kTrainingConfig) : "";
}

bool IsCheckpoint(const std::string& path) { return Hdf5File::Open(path).Exists(kState); }

Checkpoint ReadCheckpoint(const std::string& path, ElementsIn place) {
  Checkpoint checkpoint = Read(path, place);
  const uint64_t digest = ComputeDigest(checkpoint);
  if (digest != checkpoint.digest) {
    Refuse(path,
           fmt::format("digest mismatch: got {}, want {}; the file is damaged: copy it again, or "
                       "use an earlier checkpoint",
                       DigestText(digest), DigestText(checkpoint.digest)));
  }
  return checkpoint;
}

Checkpoint ReadCheckpointHeader(const std::string& path) { return Read(path, std::nullopt); }

void CheckCompatible(const Checkpoint& checkpoint, std::span<const VariableSpec> expected,
                     const std::string& path, bool (*may_be_unused)(std::string_view name)) {
  constexpr int kMaxShown = 5;
  int count = 0;
  std::string shown;
  const auto add = [&](const std::string& difference) {
    if (++count <= kMaxShown) shown += (count > 1 ? ", " : "") + difference;
  };
  std::unordered_map<std::string_view, const Shape*> found;
  for (const CheckpointVariable& v : checkpoint.variables) found.emplace(v.name, &v.shape);
  for (const VariableSpec& want : expected) {
    const auto it = found.find(want.name);
    if (it == found.end()) {
      add(fmt::format("{} is missing", want.name));
      continue;
    }
    if (*it->second != want.shape) {
      add(fmt::format("{} has shape {}, want {}", want.name, it->second->ToString(),
                      want.shape.ToString()));
    }
    found.erase(it);
  }
  for (const CheckpointVariable& v : checkpoint.variables) {
    if (found.contains(v.name) && !(may_be_unused != nullptr && may_be_unused(v.name)))
      add(fmt::format("{} is unexpected", v.name));
  }
  if (count == 0) return;
  Refuse(path, fmt::format("is a checkpoint of another net: {} variables differ: {}{}; use the {} "
                           "and {} that wrote it, or another folder",
                           count, shown, count > kMaxShown ? ", …" : "", Option("model_name"),
                           Option("train_image_size")));
}

}  // namespace carole::io
