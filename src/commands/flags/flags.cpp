#include "src/commands/flags/flags.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "collectives/all_reduce_algorithm.h"
#include "io/datasets/datasets.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"

namespace carole::commands {

std::string ValidateWeightsName(const std::string& name) {
  if (!name.ends_with(".weights.h5")) return "";
  return name + ": Keras expects another layout in *.weights.h5; want NAME.h5";
}

namespace {

const std::vector<std::pair<std::string, io::DctMethod>> kDctMethods = {
    {"INTEGER_FAST", io::DctMethod::kIntegerFast},
    {"INTEGER_ACCURATE", io::DctMethod::kIntegerAccurate}};

}  // namespace

void AddSettings(CommandLine& line, const Settings& settings) {
  for (const Setting& setting : settings) {
    const std::string name(setting.name);
    if (line.HasFlag(name)) continue;
    std::string help(setting.help);
    if (!setting.choices.empty()) help += " " + OneOf(JoinTexts(setting.choices));
    std::visit([&](auto* value) { line.Add(name, *value, help); }, setting.value);
  }
}

io::DctMethod ParseDctMethod(const std::string& name) {
  for (const auto& [known, method] : kDctMethods) {
    if (known == name) return method;
  }
  return io::DctMethod::kIntegerFast;
}

std::string Name(io::DctMethod method) {
  const auto found =
      std::ranges::find(kDctMethods, method, &std::pair<std::string, io::DctMethod>::second);
  return found->first;
}

DataConfig MakeDataConfig(const std::string& dataset_name, const std::string& split) {
  DataConfig config{.dataset_name = dataset_name};
  config.pipeline.split = split;
  return config;
}

void AddPixelFlags(CommandLine& line, DataConfig& config) {
  line.Add("labels_offset", config.pipeline.labels_offset,
           "Number subtracted from every label and from the number of classes; a negative one adds "
           "classes that only the net has, such as TF-Slim's background class.")
      .Between(-1'000'000, 1'000'000);
  line.Add("preprocessing_name", config.preprocessing_name,
           "Net whose preprocessing is used; empty: that of --model_name.");
  line.Add("use_grayscale,input_grayscale", config.use_grayscale,
           "Feed the net one gray channel; colors are weighted as in TensorFlow, after their "
           "distortion.");
}

void AddDatasetFlags(CommandLine& line, DataConfig& config, DatasetDir dataset_dir) {
  io::PipelineOptions& pipeline = config.pipeline;
  line.Group("Data");
  line.Add("dataset_name", config.dataset_name,
           "Data set to read. " + OneOf(JoinNames(io::kDatasets)), HelpLevel::kBasic);
  line.Add("dataset_split_name", pipeline.split, "Split to read, such as train or validation.");
  line.AddPathList(
      "dataset_dir,data_dir", pipeline.dataset_dir,
      "Folder of the TFRecords, or a comma list of folders, files of any name and globs; "
      "for MNIST also a folder of the raw files.",
      HelpLevel::kBasic);
  if (dataset_dir == DatasetDir::kRequired) line.MarkRequired("dataset_dir");
  AddPixelFlags(line, config);
  line.Add("num_preprocessing_threads", config.num_preprocessing_threads,
           "Threads per rank that decode images, at most the rank's cores; 0: the cores that "
           "--threads leaves free, or all cores if it leaves none. If the rank computes on a GPU, "
           "its hyperthreads count, too, and 0 leaves one of them free, or four (at most half) if "
           "GPUs are on several hosts.")
      .Between(0, 1024);
  line.AddPath("work_dir", pipeline.work_dir,
               "Folder for the index of records if --dataset_dir is read-only, and for TFRecords "
               "that are made from MNIST's raw files.");
  line.AddChoice("dct_method", pipeline.dct_method, kDctMethods,
                 "Inverse DCT of JPEG decoding; INTEGER_FAST gives TensorFlow's pixels.");
  line.Add("dct_scaling", pipeline.dct_scaling,
           "Decode JPEGs at 1/2, 1/4 or 1/8 of their size if that is not smaller than the "
           "net's input; faster for large photos, but smoother than TF-Slim's pixels.");
  line.AddNonNegative("max_bad_records", pipeline.max_bad_records,
                      "Damaged records per epoch, over all ranks, that are skipped with a "
                      "warning; 0: the first one ends the run.");
}

void RequireFp32IfQuantized(const nets::ModelOptions& model, Precision precision) {
  if (!model.quantization || precision == Precision::kFp32 || precision == Precision::kTf32) return;
  throw UsageError({.tag = "flags",
                    .option = "precision",
                    .got = Name(precision),
                    .want = "fp32 or tf32 for a quantized net"});
}

void AddNetFlags(CommandLine& line, NetConfig& config, const std::string& size_name) {
  line.Group("Net");
  line.Add("model_name", config.model_name, "Net; `carole model list` shows all nets.",
           HelpLevel::kBasic);
  line.Add(size_name, config.model.image_size,
           "Image height and width in pixels; 0: the net's own.", HelpLevel::kBasic)
      .Between(0, 1 << 14);
}

void AddCheckpointFlags(CommandLine& line, CheckpointConfig& config) {
  line.Group("Checkpoint");
  line.AddPath("checkpoint_path", config.path,
               "Checkpoint: a file (with or without .h5), a TensorFlow prefix, or a folder, whose "
               "newest intact checkpoint is used.",
               HelpLevel::kBasic);
  line.AddPath("train_dir,output_dir", config.train_dir,
               "Same as --checkpoint_path; counts if that is not given.");
  line.Add("moving_average_decay", config.moving_average_decay,
           "Use the moving averages of the variables unless this is 0.");
}

void ResolveCheckpoint(const CommandLine& line, CheckpointConfig& config) {
  if (line.IsGiven("checkpoint_path")) return;
  if (line.IsGiven("train_dir")) {
    config.path = config.train_dir;
  } else {
    LogInfo("flags", "--checkpoint_path: not given; takes {}", config.path);
  }
}

void AddOptimizerFlags(CommandLine& line, std::string& optimizer, optim::OptimizerOptions& o) {
  line.Group("Optimization");
  line.Add("optimizer", optimizer, "Update rule. " + OneOf(JoinNames(optim::kOptimizers)),
           HelpLevel::kBasic);
  line.Add("weight_decay", o.weight_decay, "Factor of the L2 penalty or decoupled decay.",
           HelpLevel::kBasic);
  line.Add("clip_gradient_norm", o.clip_gradient_norm,
           "Largest global norm of the gradient without its L2 terms; 0: no clipping.");
  for (const optim::OptimizerEntry& entry : optim::kOptimizers)
    AddSettings(line, entry.settings(o));
}

void AddScheduleFlags(CommandLine& line, optim::LearningRateOptions& o) {
  line.Group("Optimization");
  line.Add("learning_rate", o.learning_rate, "Initial learning rate.", HelpLevel::kBasic);
  line.Add("learning_rate_decay_type", o.type,
           "Learning rate schedule. " + OneOf(optim::kDecayTypes), HelpLevel::kBasic);
  line.AddNonNegative("learning_rate_base_batch", o.base_batch,
                      "Global batch size for which --learning_rate is meant; the rate grows in "
                      "proportion to the global batch; 0: it does not.");
  line.Add("end_learning_rate", o.end_learning_rate,
           "Final learning rate of the schedules polynomial and cosine.");
  line.Add("learning_rate_decay_factor", o.decay_factor,
           "Factor by which the exponential schedule changes the rate at each decay.");
  line.Add("num_epochs_per_decay", o.num_epochs_per_decay,
           "Epochs between two decays (exponential), or until --end_learning_rate is reached "
           "(polynomial and cosine; 0: the length of the run).");
  line.Add("learning_rate_boundaries", o.boundaries,
           "Epochs at which the piecewise schedule changes the rate.");
  line.Add("learning_rate_factors", o.factors,
           "Factors of --learning_rate before, between and after the boundaries of the "
           "piecewise schedule.");
  line.Add("warmup_epochs", o.warmup_epochs, "Epochs of linear warm-up of the learning rate.");
}

void AddPrecisionFlag(CommandLine& line, Precision& precision, const std::string& help) {
  std::vector<std::pair<std::string, Precision>> choices;
  for (const Precision p : kPrecisions) choices.emplace_back(carole::Name(p), p);
  line.AddChoice("precision", precision, choices, help, HelpLevel::kBasic);
}

void AddMachineFlags(CommandLine& line, MachineConfig& config) {
  line.Group("Ranks and devices");
  line.Add("backend", config.backend, "Library that computes; auto: cuda if a GPU works, else cpu.",
           HelpLevel::kBasic)
      .OneOf({"auto", "cpu", "cuda", "onednn", "reference"});
  line.Add("threads", config.threads, "Threads per rank; 0: its share of the cores.",
           HelpLevel::kBasic)
      .Between(0, 4096);
  AddPrecisionFlag(line, config.precision,
                   "Type of activations and products, if the device has it; weights stay fp32.");
  line.Add("winograd", config.winograd,
           "On CPUs, use Winograd's algorithm for 3x3 convolutions that it makes faster; its "
           "error is 1e-6 instead of 2e-7, too large for the deep vgg_416, which never uses it.");
  line.Add("autotune", config.autotune,
           "On GPUs, time cuDNN's plans for each new convolution and keep the fastest in "
           "$XDG_CACHE_HOME/carole/plans (by default below ~/.cache).");
}

void AddCollectiveFlags(CommandLine& line, MachineConfig& config) {
  collectives::CommunicatorOptions& communicator = config.communicator;
  line.Group("Ranks and devices");
  std::vector<std::pair<std::string, collectives::AllReduceAlgorithm>> algorithms;
  for (const std::string_view name : collectives::SelectableAllReduceNames())
    algorithms.emplace_back(name, collectives::ParseAllReduce(name));
  line.AddChoice("all_reduce", communicator.all_reduce, algorithms,
                 "Algorithm of all-reduce; auto: between hosts it is measured once and kept in "
                 "$XDG_CACHE_HOME/carole/all_reduce (by default below ~/.cache).");
  line.AddChoice<std::optional<DType>>(
      "wire_dtype", communicator.wire_dtype,
      {{"fp32", DType::kF32}, {"bf16", DType::kBF16}, {"auto", std::nullopt}},
      "Type of gradients sent between hosts, and between GPUs; bf16 halves the bytes. CPUs still "
      "add in fp32; GPUs add in bf16. auto: bf16 if there are several hosts and the network "
      "between them is slow, which is measured at the start.");
  line.AddPositive("collective_timeout", communicator.deadline_seconds,
                   "Seconds after which a rank that does not arrive or stops sending ends the "
                   "job.");
  line.AddNonNegative("bucket_mb", config.bucket_mb,
                      "Size of a gradient bucket in MiB; 0: chosen automatically.");
}

}  // namespace carole::commands
