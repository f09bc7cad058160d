#include "io/weights/open_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/hdf5.h"
#include "io/tensorflow/tf_checkpoint.h"
#include "io/weights/keras_weights.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// A checkpoint of carole, verified as a whole. Its elements stay in the file.
class CheckpointWeights : public WeightsSource {
 public:
  explicit CheckpointWeights(LoadedCheckpoint loaded) : loaded_(std::move(loaded)) {
    for (const auto* list : {&loaded_.checkpoint.variables, &loaded_.checkpoint.slots}) {
      for (const CheckpointVariable& v : *list) {
        names_.push_back(v.name);
        variables_[v.name] = &v;
      }
    }
  }

  const std::string& path() const override { return loaded_.path; }
  const std::vector<std::string>& names() const override { return names_; }
  bool Has(const std::string& name) const override { return variables_.contains(name); }
  Shape shape(const std::string& name) const override { return variables_.at(name)->shape; }
  void Read(const std::string& name, std::span<float> out) const override {
    const std::vector<float> data = variables_.at(name)->read();
    CAROLE_CHECK_EQ(out.size(), data.size(), "elements of {}", name);
    std::copy(data.begin(), data.end(), out.begin());
  }
  std::optional<int64_t> step() const override { return loaded_.checkpoint.step; }
  const Checkpoint* carole_checkpoint() const override { return &loaded_.checkpoint; }

 private:
  const LoadedCheckpoint loaded_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, const CheckpointVariable*> variables_;
};

bool HoldsCheckpoints(const std::string& path) {
  if (std::filesystem::is_directory(path)) return !ListCheckpoints(path).empty();
  if (path.ends_with(".h5")) return true;
  return std::filesystem::is_regular_file(path) && IsHdf5(path) && IsCheckpoint(path);
}

std::unique_ptr<WeightsSource> OpenCheckpoint(const std::string& path) {
  if (!std::filesystem::is_directory(path))
    return std::make_unique<CheckpointWeights>(
        LoadedCheckpoint{path, ReadCheckpoint(path, ElementsIn::kFile)});
  return std::make_unique<CheckpointWeights>(std::move(*ReadLatest(path, ElementsIn::kFile)));
}

bool HoldsTfCheckpoint(const std::string& path) { return FindTfCheckpoint(path).has_value(); }

std::unique_ptr<WeightsSource> OpenFoundTfCheckpoint(const std::string& path) {
  return OpenTfCheckpoint(*FindTfCheckpoint(path));
}

// True for an HDF5 file that is not a checkpoint of carole.
bool HoldsKerasWeights(const std::string& path) {
  return std::filesystem::is_regular_file(path) && IsHdf5(path) && !IsCheckpoint(path);
}

// A file format.
struct WeightsFormat {
  bool (*recognizes)(const std::string& path);
  std::unique_ptr<WeightsSource> (*open)(const std::string& path);
};

// The first format that recognizes a path opens it.
constexpr WeightsFormat kFormats[] = {
    {HoldsKerasWeights, OpenKerasWeights},
    {HoldsCheckpoints, OpenCheckpoint},
    {HoldsTfCheckpoint, OpenFoundTfCheckpoint},
};

// Returns the first .h5 file of the folder by name, to suggest it in an error. Folders are searched
// for names with a step only, which files of Keras users need not have.
std::optional<std::string> FirstHdf5(const std::string& folder) {
  std::optional<std::string> first;
  if (!std::filesystem::is_directory(folder)) return first;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path();
    if (path.ends_with(".h5") && (!first || path < *first)) first = path;
  }
  return first;
}

}  // namespace

std::string ResolveWeightsPath(const std::string& path) {
  const std::string file = path + ".h5";
  const bool is_meant = !std::filesystem::exists(path) && std::filesystem::is_regular_file(file);
  return is_meant ? file : path;
}

std::unique_ptr<WeightsSource> TryOpenWeights(const std::string& path) {
  const std::string file = ResolveWeightsPath(path);
  for (const WeightsFormat& format : kFormats) {
    if (format.recognizes(file)) return format.open(file);
  }
  return nullptr;
}

std::string DescribeUnnamedCheckpoint(const std::string& folder) {
  const auto prefix = FindUnnamedTfCheckpoint(folder);
  if (!prefix) return "";
  return fmt::format(
      "{0}: has no file named checkpoint, which says that {1} is its latest checkpoint; name the "
      "checkpoint by its prefix, or write the line model_checkpoint_path: \"{1}\" into "
      "{0}/checkpoint",
      folder, std::filesystem::path(*prefix).filename().string());
}

std::unique_ptr<WeightsSource> OpenWeights(const std::string& path) {
  if (auto reader = TryOpenWeights(path)) return reader;
  if (std::filesystem::exists(path + "/saved_model.pb"))
    return OpenWeights(path + "/variables/variables");
  if (std::filesystem::is_regular_file(path)) {
    throw DataError(
        fmt::format("[io.weights] {}: is not a checkpoint: got another kind of file, want an .h5 "
                    "file or the prefix of a TensorFlow checkpoint; in Keras, write the file with "
                    "model.save(\"NAME.h5\")",
                    path));
  }
  if (const std::string unnamed = DescribeUnnamedCheckpoint(path); !unnamed.empty())
    throw DataError("[io.weights] " + unnamed);
  if (path.empty())
    throw UsageError("[io.weights] " + Option("checkpoint_path") + ": empty; name a checkpoint");
  const auto file = FirstHdf5(path);
  throw DataError(
      fmt::format("[io.weights] {}: no checkpoint found; give the path of a file{}, or of a folder "
                  "that holds checkpoints",
                  path, file ? fmt::format(" such as {}", *file) : ""));
}

}  // namespace carole::io
