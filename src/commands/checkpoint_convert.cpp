// carole checkpoint convert: converts a file that OpenWeights() reads to .h5 or to TensorFlow's V2
// format.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "io/checkpoint/checkpoint.h"
#include "io/tensorflow/tf_checkpoint.h"
#include "io/weights/open_weights.h"
#include "io/weights/weights_mapping.h"
#include "nets/nets.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/export_target.h"
#include "src/commands/flags/flags.h"
#include "src/commands/setup/evaluation.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/export/keras_model.h"
#include "src/graph/quantization_names.h"
#include "src/train/state/quantization_state.h"
#include "src/train/state/run_metadata.h"
#include "src/train/state/state.h"

namespace carole::commands {
namespace {

struct ConvertFlags {
  std::string source, target, model_name;
  int64_t image_size = 0;
  bool moving_averages = false, tf2_names = false;
};

constexpr std::string_view kHdf5 = ".h5";

std::vector<io::VariableSpec> VariableSpecs(const Graph& graph) {
  std::vector<io::VariableSpec> specs;
  for (const Variable& v : graph.variables()) specs.push_back({v.name, v.tf_shape});
  return specs;
}

// A net whose variables a file has, and the options with which their shapes fit.
struct FittedNet {
  const nets::NetEntry* entry;
  nets::ModelOptions options;
};

// Returns options with the file's numbers of channels and classes. They are the sizes of the first
// filter and of the last variable.
nets::ModelOptions GuessOptions(const nets::NetEntry& net, const io::WeightsSource& file,
                                int64_t image_size) {
  nets::ModelOptions options{.batch_size = 1, .image_size = image_size};
  const nets::Model model = nets::BuildModel(net, options);
  const io::MappedWeights mapped(file, VariableSpecs(*model.graph));
  const Variable& first = model.graph->variables().front();
  const Variable& last = model.graph->variables().back();
  if (mapped.Has(first.name) && first.tf_shape.rank() == 4 && mapped.shape(first.name).rank() == 4)
    options.channels = mapped.shape(first.name)[2];
  if (mapped.Has(last.name) && last.tf_shape.rank() > 0)
    options.num_classes = mapped.shape(last.name)[mapped.shape(last.name).rank() - 1];
  return options;
}

// The variables of a net that do not fit a file.
struct Misfits {
  std::vector<std::string> missing, misshapen;

  bool empty() const { return missing.empty() && misshapen.empty(); }
};

Misfits FindMisfits(const nets::NetEntry& net, const nets::ModelOptions& options,
                    const io::WeightsSource& file) {
  const nets::Model model = nets::BuildModel(net, options);
  const std::vector<io::VariableSpec> specs = VariableSpecs(*model.graph);
  const io::MappedWeights mapped(file, specs);
  Misfits misfits;
  for (const io::VariableSpec& v : specs) {
    if (!mapped.Has(v.name)) {
      misfits.missing.push_back(v.name);
    } else if (mapped.shape(v.name) != v.shape) {
      misfits.misshapen.push_back(fmt::format("{} (got {}, want {})", v.name,
                                              mapped.shape(v.name).ToString(), v.shape.ToString()));
    }
  }
  return misfits;
}

std::optional<FittedNet> TryNet(const nets::NetEntry& net, const io::WeightsSource& file,
                                int64_t image_size) {
  try {
    const nets::ModelOptions options = GuessOptions(net, file, image_size);
    if (FindMisfits(net, options, file).empty()) return FittedNet{&net, options};
  } catch (const UsageError&) {
    // The net does not support the sizes in the file.
  }
  return std::nullopt;
}

// Says which variables of the net do not fit the file. `image_size`: 0 is the net's own.
std::string DescribeMisfit(const nets::NetEntry& net, const io::WeightsSource& file,
                           int64_t image_size) {
  constexpr size_t kMaxShown = 3;
  Misfits misfits;
  try {
    misfits = FindMisfits(net, GuessOptions(net, file, image_size), file);
  } catch (const UsageError& error) {  // the net does not support the sizes in the file
    return std::string(WithoutTag(error.what()));
  }
  const auto& [missing, misshapen] = misfits;
  std::string text;
  if (!missing.empty())
    text = fmt::format("it lacks {} variables: {}", missing.size(), JoinFirst(missing, kMaxShown));
  if (!misshapen.empty()) {
    text += fmt::format("{}{} variables have other shapes: {}", text.empty() ? "" : "; ",
                        misshapen.size(), JoinFirst(misshapen, kMaxShown));
  }
  return text;
}

// Returns the net that is named, or the first net all of whose variables the file has; nullopt if
// none fits.
std::optional<FittedNet> FindNet(const ConvertFlags& flags, const io::WeightsSource& file) {
  if (flags.model_name.empty()) {
    for (const nets::NetEntry& net : nets::kNets) {
      if (const auto found = TryNet(net, file, flags.image_size)) return found;
    }
    if (flags.image_size == 0) return std::nullopt;
    throw UsageError(
        fmt::format("[checkpoint] --image_size: got {}, but no net with images of this size has "
                    "the variables of {}; leave it out, or name the net with --model_name",
                    flags.image_size, file.path()));
  }
  const nets::NetEntry& net = nets::FindNet(flags.model_name);
  if (flags.image_size > 0) (void)nets::BuildModel(net, {.image_size = flags.image_size});
  if (const auto found = TryNet(net, file, flags.image_size)) return found;
  const std::string hint = file.misfit_hint().empty()
                               ? "leave --model_name out, or compare with `carole checkpoint "
                                 "inspect --all`"
                               : file.misfit_hint();
  throw DataError(fmt::format("[checkpoint] {}: is no checkpoint of {}: {}; {}", file.path(),
                              net.name, DescribeMisfit(net, file, flags.image_size), hint));
}

// Whether a name is that of an optimizer slot. A slot's name without its last part is the name of a
// variable. Scalars of an optimizer have no scope.
bool IsSlot(const std::string& name, const io::WeightsSource& file) {
  const size_t slash = name.rfind('/');
  if (slash == name.npos) return file.shape(name).rank() == 0;
  return file.Has(name.substr(0, slash));
}

bool IsStatistic(const std::string& name) {
  return name.ends_with("/moving_mean") || name.ends_with("/moving_variance");
}

void PrintLeftOut(const std::vector<std::string>& names) {
  constexpr size_t kMaxShown = 8;
  if (!names.empty()) fmt::print("left out ({}): {}\n", names.size(), JoinFirst(names, kMaxShown));
}

// Reads the variables of `net`, in its order, and the slots. If `net` is empty, because the net is
// unknown, reads everything in the file.
io::Checkpoint Collect(const io::WeightsSource& file, const std::vector<Variable>& net) {
  io::Checkpoint checkpoint{.step = file.step().value_or(0)};
  std::set<std::string> done;
  std::vector<std::string> left_out = file.other_tensors();
  std::erase_if(left_out, [](const std::string& described) {
    return io::IsGlobalStep(described.substr(0, described.find(' ')));
  });
  const auto add = [&](std::vector<io::CheckpointVariable>& list, const std::string& name,
                       bool trainable) {
    if (!done.insert(name).second) return;
    const Shape shape = file.shape(name);
    std::vector<float> data(static_cast<size_t>(shape.size()));
    file.Read(name, data);
    list.push_back({name, shape, std::move(data), trainable});
  };
  for (const Variable& v : net) {
    if (file.Has(v.name)) add(checkpoint.variables, v.name, v.trainable);
  }
  for (const std::string& name : file.names()) {
    if (train::IsQuantizationState(name)) {
      add(checkpoint.variables, name, false);
    } else if (IsSlot(name, file)) {
      add(checkpoint.slots, name, false);
    } else if (net.empty()) {
      add(checkpoint.variables, name, !IsStatistic(name));
    } else if (!done.contains(name)) {
      left_out.push_back(name);
    }
  }
  PrintLeftOut(left_out);
  return checkpoint;
}

// Reads the variables of the training net, which include an auxiliary head if the file has one.
io::Checkpoint CollectNet(const io::WeightsSource& file, const FittedNet& net) {
  nets::ModelOptions options = net.options;
  options.training = true;
  const nets::Model model = nets::BuildModel(*net.entry, options);
  const io::MappedWeights mapped(file, VariableSpecs(*model.graph));
  for (const std::string& line : mapped.report()) fmt::print("{}\n", line);
  io::Checkpoint checkpoint = Collect(mapped, model.graph->variables());
  const Shape images = model.graph->shape(model.graph->input("images"));
  checkpoint.attributes = {
      {train::kNet, std::string(net.entry->name)},
      {train::kImageSize, std::to_string(images[2])},
      {train::kChannels, std::to_string(model.graph->variables().front().tf_shape[2])},
      {train::kNumClasses, std::to_string(model.graph->shape(model.logits)[1])},
      {"converted_from", file.path()}};
  checkpoint.keras =
      train::MakeKerasModel(*model.graph, model.logits, std::string(net.entry->name));
  return checkpoint;
}

std::span<const char> BytesOf(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

// True if the last part of a path may be the prefix of TensorFlow's files: it has no ending, or one
// like those of model.ckpt-1000, model.ckpt and mobilenet_v1_0.25_128.
bool IsTfPrefix(const std::string& target) {
  const std::string ending = std::filesystem::path(target).extension();
  return ending.empty() || ending.starts_with(".ckpt") ||
         (ending.size() > 1 && ending[1] >= '0' && ending[1] <= '9');
}

void RequireFileName(const std::string& target) {
  std::error_code error;
  if (target.empty() || target.ends_with('/') || std::filesystem::is_directory(target, error))
    throw UsageError(
        fmt::format("[checkpoint] {}: is a folder; name a file NAME.h5 or a TensorFlow prefix "
                    "FOLDER/model.ckpt-STEP",
                    target));
  if (!target.ends_with(kHdf5) && !IsTfPrefix(target))
    throw UsageError(fmt::format(
        "[checkpoint] {}: unsupported file name ending: got {}, want .h5, which is HDF5 for Keras, "
        "or a prefix of TensorFlow's files without an ending, such as FOLDER/model.ckpt-STEP; no "
        "other format can be written",
        target, std::filesystem::path(target).extension().string()));
}

// Replaces each variable by its moving average. Removes the slots, which belong to the weights that
// were replaced.
void UseMovingAverages(const std::string& path, io::Checkpoint& checkpoint) {
  size_t taken = 0;
  for (io::CheckpointVariable& v : checkpoint.variables) {
    const auto average = std::ranges::find(checkpoint.slots, v.name + train::kMovingAverageSuffix,
                                           &io::CheckpointVariable::name);
    if (average == checkpoint.slots.end()) continue;
    v.data = std::move(average->data);
    ++taken;
  }
  if (taken == 0)
    throw DataError(
        fmt::format("[checkpoint] {}: has no moving averages; leave --moving_averages out", path));
  checkpoint.slots.clear();
  fmt::print("{} of {} variables were replaced by their moving averages\n", taken,
             checkpoint.variables.size());
}

void WriteTf(const io::Checkpoint& checkpoint, const std::string& prefix, bool tf2_names) {
  std::vector<io::TfTensor> tensors;
  std::vector<int64_t> quantized_steps;
  for (const auto* list : {&checkpoint.variables, &checkpoint.slots}) {
    for (const io::CheckpointVariable& v : *list) {
      const std::string name = tf2_names ? io::WithoutResNetScope(v.name) : v.name;
      if (name == kQuantizationStep) {
        // The count is a mean over ranks, which is rounded.
        for (const float count : v.data) quantized_steps.push_back(std::llround(count));
        tensors.push_back({name, io::TfType::kInt64, v.shape, BytesOf(quantized_steps)});
      } else {
        tensors.push_back({name, io::TfType::kFloat, v.shape, BytesOf(v.data)});
      }
    }
  }
  const std::vector<int64_t> step{checkpoint.step};
  tensors.push_back({"global_step", io::TfType::kInt64, {}, BytesOf(step)});
  io::WriteTfCheckpoint(prefix, std::move(tensors));
}

// Fills the net and its image size from the run's metadata, unless another net is asked for.
void FillMissingFlags(const train::RunMetadata& metadata, ConvertFlags& flags) {
  const auto net = metadata.find(train::kNet);
  const bool is_known = net != metadata.end() && nets::TryFindNet(net->second) != nullptr;
  if (!is_known || !(flags.model_name.empty() || flags.model_name == net->second)) return;
  flags.model_name = net->second;
  train::FillFromMetadata(metadata, train::kImageSize, flags.image_size);
}

// Loads the source. This program's checkpoints keep their position in the data, their attributes,
// and the settings with which Keras continues their training.
io::Checkpoint Load(ConvertFlags flags) {
  const std::unique_ptr<io::WeightsSource> file = io::OpenWeights(flags.source);
  const std::string written =
      flags.target.ends_with(kHdf5) ? flags.target : flags.target + ".index";
  ProtectCheckpoint("[checkpoint] " + flags.target, file->path(), written);
  const io::Checkpoint* own = file->carole_checkpoint();
  if (!file->step())
    LogWarning("checkpoint", "{}: stores no global_step; the new file gets step 0", file->path());
  FillMissingFlags(ReadRunMetadata(*file), flags);
  const std::optional<FittedNet> net = FindNet(flags, *file);
  io::Checkpoint checkpoint = net ? CollectNet(*file, *net) : Collect(*file, {});
  if (own != nullptr) {
    std::optional<io::KerasModel> keras = std::move(checkpoint.keras);
    if (keras) keras->training_config = io::ReadKerasTrainingConfig(file->path());
    checkpoint = *own;
    for (auto* list : {&checkpoint.variables, &checkpoint.slots}) {
      for (io::CheckpointVariable& v : *list) v.data = std::exchange(v.read, nullptr)();
    }
    checkpoint.keras = std::move(keras);
  }
  if (!net && !file->misfit_hint().empty())
    fmt::print("{}: no net fits: {}\n", file->path(), file->misfit_hint());
  fmt::print("{}: {}, step {}: {} variables, {} slots\n", file->path(),
             net ? net->entry->name : "unknown net", checkpoint.step, checkpoint.variables.size(),
             checkpoint.slots.size());
  return checkpoint;
}

}  // namespace

int CheckpointConvert(const Arguments& arguments) {
  ConvertFlags flags;
  CommandLine line(
      "carole checkpoint convert",
      "Converts a checkpoint to .h5 or to TensorFlow's format (V2). Slots and the step are kept; "
      "the position in the data and the attributes are kept in .h5 only.",
      {"carole checkpoint convert RUN tf/model.ckpt-1000",
       "carole checkpoint convert --model_name=resnet_v1_50 resnet_v1_50.ckpt resnet_v1_50.h5"});
  line.AddPositionalPath(
          "SOURCE", flags.source,
          "Checkpoint of this program, Keras (.h5) or TensorFlow (V1, or the prefix of "
          "V2), or a folder.")
      .Required();
  line.AddPositionalPath(
          "TARGET", flags.target,
          "File to write: NAME.h5, or the prefix of TensorFlow's files, which has no ending or "
          "one like that of model.ckpt-1000.")
      .Required()
      .Satisfies(ValidateWeightsName);
  line.Group("Conversion");
  line.Add("model_name", flags.model_name, "Net of the checkpoint; empty: found by its variables.",
           HelpLevel::kBasic);
  line.AddNonNegative("image_size,eval_image_size", flags.image_size,
                      "Image size in pixels of the net that Keras rebuilds; 0: the run's, else the "
                      "net's own size.",
                      HelpLevel::kBasic);
  line.Add("moving_averages", flags.moving_averages,
           "Write the moving averages (--moving_average_decay) as weights, without slots.",
           HelpLevel::kBasic);
  line.Add("tf2_names", flags.tf2_names,
           "In TensorFlow's format, name imagenet_resnet's variables as the TensorFlow 2 "
           "program does, without resnet/.",
           HelpLevel::kBasic);
  if (!line.Parse(arguments)) return 0;
  RequireFileName(flags.target);
  RejectSpecialFile("checkpoint", flags.target);
  if (flags.tf2_names && flags.target.ends_with(kHdf5)) {
    throw UsageError(
        fmt::format("[flags] --tf2_names: got {}, want the prefix of TensorFlow's files; Keras "
                    "matches variables by order, not by name",
                    flags.target));
  }
  io::Checkpoint checkpoint = Load(flags);
  if (flags.moving_averages) UseMovingAverages(flags.source, checkpoint);
  const std::filesystem::path folder = std::filesystem::path(flags.target).parent_path();
  if (!folder.empty()) MakeFolder("convert", folder);
  if (flags.target.ends_with(kHdf5)) {
    io::WriteCheckpoint(checkpoint, flags.target);
  } else {
    WriteTf(checkpoint, flags.target, flags.tf2_names);
  }
  fmt::print("{}: written\n", flags.target);
  return 0;
}

}  // namespace carole::commands
