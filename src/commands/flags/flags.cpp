#include "src/commands/flags/flags.h"

#include <type_traits>
#include <variant>

#include "collectives/algorithms/algorithms.h"
#include "io/datasets/datasets.h"
#include "src/core/text/join_names.h"

namespace carole::commands {

std::string ValidateWeightsName(const std::string& name) {
  if (!name.ends_with(".weights.h5")) return "";
  return name + ": Keras expects another layout in *.weights.h5; want NAME.h5";
}

void AddSettings(CommandLine& line, const Settings& settings) {
  for (const Setting& setting : settings) {
    const std::string name(setting.name);
    if (line.HasFlag(name)) continue;
    std::string help(setting.help);
    if (!setting.choices.empty()) help += " " + OneOf(JoinTexts(setting.choices));
    std::visit(
        [&](auto* value) {
          if constexpr (std::is_same_v<decltype(value), bool*>) {
            line.AddBool(name, *value, help);
          } else {
            line.Add(name, *value, help);
          }
        },
        setting.value);
  }
}

io::DctMethod ParseDctMethod(const std::string& name) {
  return name == "INTEGER_ACCURATE" ? io::DctMethod::kIntegerAccurate : io::DctMethod::kIntegerFast;
}

void AddDatasetFlags(CommandLine& line, DatasetFlags& flags, DatasetDir dataset_dir) {
  line.Group("Data");
  line.Add("dataset_name", flags.dataset_name,
           "Data set to read. " + OneOf(JoinNames(io::kDatasets)), HelpLevel::kBasic);
  line.Add("dataset_split_name", flags.dataset_split_name,
           "Split to read, such as train or validation.", HelpLevel::kBasic);
  line.AddPath("dataset_dir,data_dir", flags.dataset_dir,
               "Folder of the TFRecords, or a comma list of folders, files and globs; for MNIST "
               "also a folder of the raw files.",
               HelpLevel::kBasic);
  if (dataset_dir == DatasetDir::kRequired) line.MarkRequired("dataset_dir");
  line.Add("labels_offset", flags.labels_offset,
           "Number subtracted from every label and from the number of classes.")
      ->check(CLI::Range(-1'000'000, 1'000'000));
  line.Add("preprocessing_name", flags.preprocessing_name,
           "Net whose preprocessing is used; empty: that of --model_name.");
  line.AddBool("use_grayscale", flags.use_grayscale,
               "Feed the net one gray channel; colors are weighted as in TensorFlow, after their "
               "distortion.");
  line.Add("num_preprocessing_threads", flags.num_preprocessing_threads,
           "Threads per rank that decode images, at most the rank's cores; 0: the cores that "
           "--threads leaves free, or all cores if it leaves none.")
      ->check(CLI::Range(0, 1024));
  line.AddPath("work_dir", flags.work_dir,
               "Folder for the index of records if --dataset_dir is read-only, and for TFRecords "
               "that are made from MNIST's raw files.");
  line.Add("dct_method", flags.dct_method,
           "Inverse DCT of JPEG decoding; INTEGER_FAST gives TensorFlow's pixels.")
      ->check(CLI::IsMember({"INTEGER_FAST", "INTEGER_ACCURATE"}));
  line.Add("jpeg_decoder", flags.jpeg_decoder,
           "JPEG decoder; nvjpeg decodes baseline color JPEGs on the rank's GPU, which slows "
           "training and changes pixels by a few levels; the CPU decodes all other images.")
      ->check(CLI::IsMember({"cpu", "nvjpeg"}));
  line.AddBool("dct_scaling", flags.dct_scaling,
               "Decode JPEGs at 1/2, 1/4 or 1/8 of their size if that is not smaller than the "
               "net's input; faster for large photos, but smoother than TF-Slim's pixels.");
  line.AddNonNegative("max_bad_records", flags.max_bad_records,
                      "Damaged records per epoch, over all ranks, that are skipped with a "
                      "warning; 0: the first one ends the run.");
}

void AddNetFlags(CommandLine& line, NetFlags& flags, const std::string& size_name) {
  line.Group("Net");
  line.Add("model_name", flags.model_name, "Net; `carole model list` shows all nets.",
           HelpLevel::kBasic);
  line.Add(size_name, flags.image_size, "Image height and width in pixels; 0: the net's own.",
           HelpLevel::kBasic)
      ->check(CLI::Range(0, 1 << 14));
}

void AddOptimizerFlags(CommandLine& line, std::string& optimizer, optim::OptimizerOptions& o) {
  line.Group("Optimization");
  line.Add("optimizer", optimizer, "Update rule. " + OneOf(JoinNames(optim::kOptimizers)),
           HelpLevel::kBasic);
  line.Add("weight_decay", o.weight_decay,
           "Factor of the L2 regularization of weights, or of their decay if the optimizer "
           "decouples it from the loss.",
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
           "(polynomial and cosine), then usually the length of the run.");
  line.AddList("learning_rate_boundaries", o.boundaries,
               "Epochs at which the piecewise schedule changes the rate.");
  line.AddList("learning_rate_factors", o.factors,
               "Factors of --learning_rate before, between and after the boundaries of the "
               "piecewise schedule.");
  line.Add("warmup_epochs", o.warmup_epochs, "Epochs of linear warm-up of the learning rate.");
}

void AddMachineFlags(CommandLine& line, MachineFlags& flags) {
  line.Group("Ranks and devices");
  line.Add("backend", flags.backend, "Library that computes; auto: cuda if a GPU works.",
           HelpLevel::kBasic)
      ->check(CLI::IsMember({"auto", "cuda", "onednn", "reference"}));
  line.Add("threads", flags.threads, "Threads per rank; 0: its share of the cores.",
           HelpLevel::kBasic)
      ->check(CLI::Range(0, 4096));
  line.Add("precision", flags.precision,
           "Type of activations and products, if the device has it; weights stay fp32.",
           HelpLevel::kBasic)
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "tf32"}));
  line.AddBool(
      "winograd", flags.winograd,
      "On CPUs, use Winograd's algorithm for 3x3 convolutions that it makes faster; its "
      "error is 1e-6 instead of 2e-7, too large for the deep vgg_416, which never uses it.");
  line.AddBool("autotune", flags.autotune,
               "On GPUs, time cuDNN's plans for each new convolution and keep the fastest in "
               "$XDG_CACHE_HOME/carole/plans (by default below ~/.cache).");
}

void AddCollectiveFlags(CommandLine& line, MachineFlags& flags) {
  line.Group("Ranks and devices");
  line.Add("all_reduce", flags.all_reduce,
           "Algorithm of all-reduce; auto: between hosts it is measured once and kept in "
           "$XDG_CACHE_HOME/carole/all_reduce (by default below ~/.cache). " +
               OneOf("auto, " + JoinNames(collectives::kAllReduce)));
  line.Add("wire_dtype", flags.wire_dtype,
           "Type of gradients sent between CPU hosts; bf16 halves the bytes, sums stay fp32.")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  line.AddPositive("collective_timeout", flags.collective_timeout,
                   "Seconds after which a rank that does not arrive or stops sending ends the "
                   "job.");
  line.AddNonNegative("bucket_mb", flags.bucket_mb,
                      "Size of a gradient bucket in MiB; 0: chosen automatically.");
}

}  // namespace carole::commands
