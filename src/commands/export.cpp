// carole export: writes a trained net in a format of other programs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "io/datasets/datasets.h"
#include "io/preprocessing/preprocessing.h"
#include "io/weights/open_weights.h"
#include "io/weights/weights_mapping.h"
#include "nets/nets.h"
#include "nets/quantization/placement.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/cli/recipes.h"
#include "src/commands/cli/version.h"
#include "src/commands/export_target.h"
#include "src/commands/setup/checkpoint_net.h"
#include "src/commands/setup/evaluation.h"
#include "src/commands/setup/inputs.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/export/common/exported_net.h"
#include "src/export/common/preprocessing_steps.h"
#include "src/export/onnx/onnx.h"
#include "src/export/safetensors/safetensors.h"
#include "src/export/tensorflow/tensorflow.h"
#include "src/train/state/quantization_state.h"
#include "src/train/state/state.h"
#include "src/train/state/warm_start.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecipeOfGraphs = "export_inference_graph";

struct ExportFlags : CheckpointNet {
  std::string recipe = "train_image_classifier";
  std::string format{kAutoFormat};  // ResolveFormat() replaces it
  std::string output;
  bool has_checkpoint = false, has_dataset_name = false;  // whether they were given
  bool with_preprocessing = false;
  bool moving_averages = false;
  bool quantize = false;
  // ONNX
  int opset = exporting::kMinOpset;
  std::string layout = "nchw";
  bool external_data = false;
  // TensorFlow
  exporting::GraphDefOptions graph;
  bool is_training = false;
  bool is_video_model = false;
  int64_t num_frames = 0;
};

void AddFlags(CommandLine& line, ExportFlags& flags) {
  line.AddPath("output,output_file", flags.output,
               "File to write; for saved_model, the folder. Folders are made.", HelpLevel::kBasic);
  line.MarkRequired("output");
  line.Add("format", flags.format,
           "Format of the file; auto: that of the ending of --output, else onnx.",
           HelpLevel::kBasic)
      .OneOf({std::string(kAutoFormat), "onnx", "graphdef", "saved_model", "safetensors"});
  AddCheckpointFlags(line, flags.checkpoint);
  line.Add("moving_averages", flags.moving_averages,
           "Write the moving averages of the weights instead of the weights.", HelpLevel::kBasic);
  line.Add(
      "quantize", flags.quantize,
      "Write the net for 8-bit integers, with the ranges that --quantize_delay of train found.",
      HelpLevel::kBasic);
  AddNetFlags(line, flags.net, "image_size,eval_image_size");
  line.AddNonNegative("num_classes", flags.net.model.num_classes,
                      "Number of classes of the net; 0: the checkpoint's or the net's number.",
                      HelpLevel::kBasic);
  line.Group("Input");
  line.Add("with_preprocessing", flags.with_preprocessing,
           "The file also preprocesses: onnx takes images as bytes, saved_model takes encoded "
           "images.",
           HelpLevel::kBasic);
  line.Add("layout", flags.layout, "Order of the dimensions of the input of onnx.",
           HelpLevel::kBasic)
      .OneOf({"nchw", "nhwc"});
  line.AddNonNegative("batch_size", flags.graph.batch_size,
                      "Images per batch in a graphdef; 0: any number.");
  line.Add("dataset_name", flags.data.dataset_name, "Data set that names the classes.");
  line.AddPath("dataset_dir,data_dir", flags.data.pipeline.dataset_dir,
               "Folder with the labels.txt of --dataset_name, if it has one.");
  AddPixelFlags(line, flags.data);
  line.Group("ONNX");
  line.Add("opset", flags.opset, "Version of the operator set.", HelpLevel::kBasic)
      .Between(exporting::kMinOpset, exporting::kMaxOpset);
  line.Add("external_data", flags.external_data,
           "Write the weights into a second file; always so above 2 GB.");
  line.Group("TensorFlow");
  line.Add("freeze", flags.graph.freeze,
           "Write the weights into the graphdef, as freeze_graph does; if not, it has none.",
           HelpLevel::kBasic);
  line.Add("write_text_graphdef", flags.graph.as_text, "Write the graphdef as text.");
  line.Add("is_training", flags.is_training, "Write the net as it is trained, without weights.");
  line.Add("is_video_model", flags.is_video_model,
           "Only false: no net of this program has frames.");
  line.AddNonNegative("num_frames", flags.num_frames, "Frames of a video net.");
  AddRecipeFlags(line, flags.recipe);
}

void RequireOutput(const ExportFlags& flags) {
  if (!flags.output.empty()) return;
  throw UsageError(flags.recipe == kRecipeOfGraphs
                       ? "[export] --output_file: missing: You must supply the path to save to "
                         "with --output_file"
                       : "[export] --output: missing: want the file to write");
}

// Sets the format, and whether a graphdef is text, from the ending of the output. TF-Slim's program
// writes a graph into a file of any name.
void ResolveFormat(const CommandLine& line, ExportFlags& flags) {
  if (flags.recipe == kRecipeOfGraphs && !line.IsGiven("format")) return;
  flags.format = ResolveExportFormat(flags.format, flags.output);
  if (flags.format != "graphdef" || !IsTextGraph(flags.output)) return;
  if (line.IsGiven("write_text_graphdef") && !flags.graph.as_text) {
    throw UsageError(
        fmt::format("[export] --write_text_graphdef: does not fit --output={}: got false, want "
                    "true; leave it out, or name a file NAME.pb",
                    flags.output));
  }
  flags.graph.as_text = true;
}

void CheckCombination(const CommandLine& line, const ExportFlags& flags) {
  if (flags.is_video_model)
    throw UsageError("[export] --is_video_model: got true, want false: no net has frames");
  const auto only_for = [&](const char* flag, std::initializer_list<std::string_view> formats) {
    if (!line.IsGiven(flag) || std::ranges::count(formats, flags.format) > 0) return;
    throw UsageError(fmt::format("[export] --{}: does not fit --format={}: want {}; leave it out",
                                 flag, flags.format, JoinTexts(formats, " or ")));
  };
  only_for("batch_size", {"graphdef"});
  only_for("opset", {"onnx"});
  only_for("layout", {"onnx"});
  only_for("external_data", {"onnx"});
  only_for("freeze", {"graphdef"});
  only_for("is_training", {"graphdef"});
  only_for("write_text_graphdef", {"graphdef"});
  only_for("with_preprocessing", {"onnx", "saved_model"});
  if (flags.is_training && flags.graph.freeze)
    throw UsageError("[export] --is_training: got true with --freeze, want one of them");
  if (flags.is_training && flags.quantize) {
    throw UsageError(
        "[export] --is_training: got true with --quantize, want one of them: only the net for "
        "inference has fixed ranges");
  }
  RequireUsableOutput(flags.format, flags.output);
}

// Only a graph without weights needs no checkpoint. One that is given says which net it is.
bool NeedsWeights(const ExportFlags& flags) {
  return flags.format != "graphdef" || flags.graph.freeze;
}

// The variables of the net itself. Ranges of quantization are not among them.
std::vector<io::VariableSpec> NetSpecsOf(const Graph& graph) {
  std::vector<io::VariableSpec> specs;
  for (const Variable& v : graph.variables()) {
    if (v.model_variable) specs.push_back({v.name, v.tf_shape});
  }
  return specs;
}

// The weights of a checkpoint for the variables of a graph.
class NetWeights {
 public:
  // Throws MisfitError if the checkpoint does not have all variables of the graph. `file` and
  // `graph` must outlive this.
  NetWeights(const io::WeightsSource& file, bool moving_averages, const Graph& graph)
      : suffix_(moving_averages ? train::kMovingAverageSuffix : ""),
        file_(file),
        mapped_(file, NetSpecsOf(graph)) {
    std::vector<std::string> missing, missing_ranges, misshapen;
    for (const Variable& v : graph.variables()) {
      const std::string name = NameOf(v);
      if (!mapped_.Has(name)) {
        (v.model_variable ? missing : missing_ranges).push_back(name);
      } else if (!(mapped_.shape(name) == v.tf_shape)) {
        misshapen.push_back(fmt::format("{} (file {}, net {})", name,
                                        mapped_.shape(name).ToString(), v.tf_shape.ToString()));
      }
    }
    Require(missing, misshapen);
    RequireRanges(missing_ranges);
    for (const std::string& line : mapped_.report()) LogInfo("export", "{}", line);
  }

  std::vector<float> Read(const Variable& v) const {
    const std::string name = NameOf(v);
    std::vector<float> values(static_cast<size_t>(v.tf_shape.size()));
    mapped_.Read(name, values);
    if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
      return values;
    throw DataError(fmt::format(
        "[export] {}: {}: got infinite or NaN values, want finite ones; use an earlier checkpoint",
        file_.path(), name));
  }

 private:
  static constexpr size_t kMaxShown = 4;

  // The name in the file. Only the variables of the net have moving averages.
  std::string NameOf(const Variable& v) const {
    return v.model_variable ? v.name + suffix_ : v.name;
  }

  void Require(const std::vector<std::string>& missing,
               const std::vector<std::string>& misshapen) const {
    if (missing.empty() && misshapen.empty()) return;
    std::string text = fmt::format("[export] {}: variables do not fit the net:", file_.path());
    if (!missing.empty()) text += fmt::format(" missing {};", JoinFirst(missing, kMaxShown));
    if (!misshapen.empty())
      text += fmt::format(" wrong shape {};", JoinFirst(misshapen, kMaxShown));
    throw train::MisfitError(
        text + " " +
        (!missing.empty() && !mapped_.misfit_hint().empty()
             ? mapped_.misfit_hint()
             : "check --model_name, --num_classes, --use_grayscale and the image size" +
                   std::string(suffix_.empty() ? "" : ", or leave --moving_averages out")));
  }

  void RequireRanges(const std::vector<std::string>& missing) const {
    if (missing.empty()) return;
    throw train::MisfitError(
        fmt::format("[export] {}: no ranges of quantization: got none for {}, want those that "
                    "--quantize_delay of train measures; train with it, or leave --quantize out",
                    file_.path(), JoinFirst(missing, kMaxShown)));
  }

  const std::string suffix_;
  const io::WeightsSource& file_;
  const io::MappedWeights mapped_;
};

// A list of texts as JSON, so that any name can be a part of it.
std::string JsonList(const std::vector<std::string>& texts) {
  return nlohmann::json(texts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::map<std::string, std::string> DescribeNet(const ExportFlags& flags, const nets::NetEntry& net,
                                               const io::WeightsSource* weights,
                                               int64_t num_classes) {
  return {{"net", std::string(net.name)},
          {"step", std::to_string(weights != nullptr ? weights->step().value_or(0) : 0)},
          {"class_names", JsonList(ClassNamesOf(flags, num_classes))},
          {"preprocessing", PreprocessingOf(net, flags.data.preprocessing_name)},
          {"image_size", std::to_string(flags.net.model.image_size)},
          {"moving_averages", flags.moving_averages ? "true" : "false"},
          {"quantized", flags.quantize ? "true" : "false"},
          {"carole_version", std::string(Version())}};
}

std::optional<exporting::PreprocessingSteps> MakeSteps(const ExportFlags& flags,
                                                       const nets::NetEntry& net) {
  if (!flags.with_preprocessing) return std::nullopt;
  const io::PreprocessingEntry& entry =
      io::FindPreprocessing(PreprocessingOf(net, flags.data.preprocessing_name));
  const auto size = static_cast<int>(flags.net.model.image_size);
  io::CheckPreprocessingSize(entry, size, size);
  return exporting::StepsOf(entry, size, DecodedChannels(flags), flags.net.model.channels);
}

void Write(const ExportFlags& flags, const nets::NetEntry& entry,
           const exporting::ExportedNet& net) {
  const fs::path output = flags.output;
  if (flags.format == "onnx") {
    exporting::WriteOnnx(net,
                         {.opset = flags.opset,
                          .channels_last = flags.layout == "nhwc",
                          .external_weights = flags.external_data,
                          .preprocessing = MakeSteps(flags, entry)},
                         output);
  } else if (flags.format == "graphdef") {
    exporting::WriteGraphDef(net, flags.graph, output);
  } else if (flags.format == "saved_model") {
    exporting::WriteSavedModel(net,
                               {.preprocessing = MakeSteps(flags, entry),
                                .dct_method = Name(flags.data.pipeline.dct_method)},
                               output);
  } else {
    exporting::WriteSafetensors(net, output);
  }
}

// Without --quantize, the net is one for floating point, even if it was trained for integers.
void ReportRanges(const io::WeightsSource& file) {
  if (std::ranges::any_of(file.names(), train::IsQuantizationState))
    LogInfo("export", "{}: has ranges of quantization, which only --quantize exports", file.path());
}

void ReportAverages(const io::WeightsSource& file) {
  if (train::HasMovingAverages(file))
    LogInfo("export", "{}: has moving averages, which only --moving_averages exports", file.path());
}

int Run(ExportFlags& flags) {
  std::unique_ptr<io::WeightsSource> weights;
  train::RunMetadata metadata;
  if (NeedsWeights(flags) || flags.has_checkpoint) {
    weights = io::OpenWeights(flags.checkpoint.path);
    ProtectCheckpoint("[export] --output: " + flags.output, weights->path(),
                      WrittenFile(flags.format, flags.output));
    metadata = ReadRunMetadata(*weights);
  }
  if (!NeedsWeights(flags)) weights.reset();
  if (weights && !flags.quantize) ReportRanges(*weights);
  if (weights && !flags.moving_averages) ReportAverages(*weights);
  // The default of a recipe, such as imagenet, does not change the classes of a checkpoint.
  if (!flags.has_dataset_name && metadata.contains(train::kNumClasses))
    flags.data.dataset_name.clear();
  FillFromCheckpoint("export", metadata, flags);
  const nets::NetEntry& entry = nets::FindNet(flags.net.model_name);
  FillSizes(entry, flags);
  if (flags.net.model.num_classes == 0 && !flags.data.dataset_name.empty()) {
    const int classes = io::FindDataset(flags.data.dataset_name).num_classes;
    if (classes > 0) flags.net.model.num_classes = classes - flags.data.pipeline.labels_offset;
  }
  nets::ModelOptions options = flags.net.model;
  options.batch_size = 1;
  options.training = flags.is_training;
  if (flags.quantize) options.quantization = nets::QuantizationOptions();
  const nets::Model model = nets::BuildModel(entry, options);
  std::optional<NetWeights> values;
  if (weights) values.emplace(*weights, flags.moving_averages, *model.graph);
  const int64_t classes = model.graph->shape(model.logits)[1];
  const exporting::ExportedNet net{.name = std::string(entry.name),
                                   .graph = *model.graph,
                                   .logits = model.logits,
                                   .predictions = model.predictions,
                                   .read = [&](const Variable& v) { return values->Read(v); },
                                   .operation_name = nets::OperationName,
                                   .metadata = DescribeNet(flags, entry, weights.get(), classes)};
  const fs::path folder = fs::path(flags.output).parent_path();
  if (!folder.empty()) MakeFolder("export", folder);
  Write(flags, entry, net);
  fmt::print("{}: {}{}, {}, {} classes{}{}\n", flags.output, flags.format,
             flags.graph.as_text ? " as text" : "", entry.name, classes,
             flags.quantize ? ", quantized to 8 bits" : "",
             weights ? fmt::format(", step {} of {}", weights->step().value_or(0), weights->path())
                     : ", without weights");
  FlushStdout();
  return 0;
}

}  // namespace

int Export(const Arguments& arguments) {
  ExportFlags flags;
  CommandLine line(
      "carole export",
      "Writes a trained net for other programs. What flags do not say is taken from the "
      "checkpoint.",
      {"carole export --checkpoint_path=RUN --output=net.onnx",
       "carole export --checkpoint_path=RUN --format=saved_model --with_preprocessing "
       "--output=served"});
  AddFlags(line, flags);
  if (!ParseWithRecipe(line, arguments, flags.recipe, &Recipe::exporting)) return 0;
  ResolveCheckpoint(line, flags.checkpoint);
  flags.has_checkpoint = line.IsGiven("checkpoint_path") || line.IsGiven("train_dir");
  flags.has_dataset_name = line.IsGiven("dataset_name");
  line.LogIgnored();
  flags.moving_averages |= flags.checkpoint.moving_average_decay != 0;
  RequireOutput(flags);
  ResolveFormat(line, flags);
  CheckCombination(line, flags);
  return Run(flags);
}

}  // namespace carole::commands
