#include "src/commands/cli/recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "src/commands/cli/config_file.h"
#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::commands {
namespace {

// The flags of train_image_classifier and eval_image_classifier.
constexpr std::string_view kSlimFlags =
    "master train_dir warmup_epochs num_clones clone_on_cpu worker_replicas num_ps_tasks "
    "num_readers num_preprocessing_threads log_every_n_steps save_summaries_secs "
    "save_interval_secs task weight_decay optimizer adadelta_rho adagrad_initial_accumulator_value "
    "adam_beta1 adam_beta2 opt_epsilon ftrl_learning_rate_power ftrl_initial_accumulator_value "
    "ftrl_l1 ftrl_l2 momentum rmsprop_momentum rmsprop_decay quantize_delay "
    "learning_rate_decay_type learning_rate end_learning_rate label_smoothing "
    "learning_rate_decay_factor num_epochs_per_decay sync_replicas replicas_to_aggregate "
    "moving_average_decay dataset_name dataset_split_name dataset_dir labels_offset model_name "
    "preprocessing_name batch_size train_image_size max_number_of_steps use_grayscale "
    "checkpoint_path checkpoint_exclude_scopes trainable_scopes ignore_missing_vars "
    "max_num_batches eval_dir eval_image_size quantize";

constexpr const char* kSlimDifferences =
    "Training is synchronous; ranks share the data; an epoch ends with a short batch; moving "
    "averages follow the update; running statistics are averaged over ranks (the first "
    "clone's: --noaverage_statistics); schedules count the batches of all ranks (of N: "
    "--sync_replicas --replicas_to_aggregate=N); evaluation counts each image once.";

// The page VGG416/Slim, whose copy of TF-Slim logs every 5 steps.
constexpr FlagDefault kVgg416Train[] = {{"model_name", "vgg_416"}, {"log_every_n_steps", "5"}};
constexpr FlagDefault kVgg416Eval[] = {{"model_name", "vgg_416"}};

// The UAI platform's ResNet on ImageNet, for TensorFlow 1.4 and 2.0. tensorflow/models has another
// program of this name, with other flags.
constexpr FlagDefault kImagenetMainTrain[] = {
    {"model_name", "imagenet_resnet_v2_50"},
    {"train_batch_size", "128"},
    {"optimizer", "momentum"},
    {"momentum", "0.9"},
    {"weight_decay", "0.0001"},
    {"learning_rate", "0.1"},
    {"learning_rate_decay_type", "piecewise"},
    {"train_epochs", "100"},
    {"epochs_per_eval", "1"},
    {"eval_batch_size", "100"},
    {"log_every_n_steps", "100"},
    {"save_interval_secs", "3600"},
    {"save_summaries_steps", "100"},
    {"work_dir", "/data/"},
};
constexpr std::string_view kImagenetMainFlags =
    "data_dir output_dir num_gpus work_dir log_dir resnet_size train_batch_size eval_batch_size "
    "train_epochs epochs_per_eval learning_rate momentum weight_decay data_format "
    "variable_strategy sync num_layers use_distortion_for_training batch_norm_decay "
    "num_intra_threads num_inter_threads batch_norm_epsilon log_device_placement";
constexpr FlagDefault kImagenetMainEval[] = {
    {"model_name", "imagenet_resnet_v2_50"},
    {"dataset_split_name", "validation"},
};

constexpr FlagDefault kMnistTrain[] = {
    {"dataset_name", "mnist"},
    {"dataset_dir", "/data/data"},
    {"train_dir", "/data/output"},
    {"work_dir", "/data"},
    {"model_name", "mnist_keras"},
    {"train_batch_size", "32"},
    {"optimizer", "adam"},
    {"opt_epsilon", "1e-7"},
    {"weight_decay", "0"},
    {"learning_rate", "0.001"},
    {"learning_rate_decay_type", "fixed"},
    {"train_epochs", "5"},
    {"final_model", "mnist.h5"},
};
constexpr FlagDefault kMnistEval[] = {
    {"dataset_name", "mnist"}, {"dataset_dir", "/data/data"}, {"checkpoint_path", "/data/output"},
    {"work_dir", "/data"},     {"model_name", "mnist_keras"},
};

constexpr FlagDefault kMnistDistTrain[] = {
    {"dataset_name", "mnist"},
    {"dataset_dir", "/data/data"},
    {"train_dir", "/data/output"},
    {"work_dir", "/data"},
    {"model_name", "mnist_keras_dist"},
    {"batch_size", "64"},
    {"optimizer", "adam"},
    {"opt_epsilon", "1e-8"},
    {"weight_decay", "0"},
    {"learning_rate", "0.001"},
    {"learning_rate_decay_type", "fixed"},
    {"max_number_of_steps", "1000"},
    {"save_summaries_steps", "100"},
};
constexpr FlagDefault kMnistDistEval[] = {
    {"dataset_name", "mnist"},           {"dataset_dir", "/data/data"},
    {"checkpoint_path", "/data/output"}, {"work_dir", "/data"},
    {"model_name", "mnist_keras_dist"},  {"batch_size", "64"},
    {"max_num_batches", "100"},
};

// No other program, but what works for a few hundred images of one's own, also without trained
// weights. The statistics of batch norm and the schedule fit the length of the run, however short.
// TF-Slim's crops of 5 % often show nothing of a small data set's classes. AdamW needs no rate for
// each net, and its decay does not win when the loss is near 0.
constexpr FlagDefault kOwnImagesTrain[] = {
    {"dataset_name", "folder"},    {"model_name", "mobilenet_v1_025"},
    {"min_crop_area", "0.5"},      {"batch_size", "16"},
    {"train_epochs", "80"},        {"optimizer", "adamw"},
    {"weight_decay", "0.01"},      {"clip_gradient_norm", "5"},
    {"learning_rate", "0.003"},    {"learning_rate_decay_type", "cosine"},
    {"num_epochs_per_decay", "0"}, {"end_learning_rate", "0"},
    {"warmup_epochs", "5"},        {"batch_norm_decay", "auto"},
    {"epochs_per_eval", "5"},      {"keep_best", "true"},
};
constexpr FlagDefault kOwnImagesEval[] = {
    {"dataset_name", "folder"},
    {"dataset_split_name", "validation"},
    {"model_name", "mobilenet_v1_025"},
};

// TF-Slim's companion of the trainer.
constexpr FlagDefault kExportInferenceGraph[] = {
    {"format", "graphdef"}, {"model_name", "inception_v3"}, {"dataset_name", "imagenet"}};
constexpr std::string_view kExportInferenceGraphFlags =
    "model_name is_training image_size batch_size dataset_name labels_offset output_file "
    "dataset_dir quantize is_video_model num_frames write_text_graphdef use_grayscale";

constexpr Recipe kRecipes[] = {
    {.name = "train_image_classifier",
     .program = "TF-Slim",
     .argparse_flags = kSlimFlags,
     .differences = kSlimDifferences},
    {.name = "vgg416",
     .program = "VGG416 of TF-Slim",
     .train = kVgg416Train,
     .eval = kVgg416Eval,
     .argparse_flags = kSlimFlags,
     .differences = kSlimDifferences},
    {.name = "imagenet_main",
     .program = "UAI's ResNet on ImageNet",
     .train = kImagenetMainTrain,
     .eval = kImagenetMainEval,
     .argparse_flags = kImagenetMainFlags,
     .required = "output_dir",
     .differences =
         "Ranks share the data and running statistics are updated (version 2.0 did neither); "
         "running statistics are averaged over ranks; an epoch ends with a short batch, weighted "
         "by its number of images; initial weights are drawn as in version 1.4; --epochs_per_eval "
         "sets how often it evaluates; TensorBoard tags are TF-Slim's."},
    {.name = "mnist",
     .program = "mnist.py of Keras",
     .train = kMnistTrain,
     .eval = kMnistEval,
     .differences =
         "--data_dir is mnist.npz, or a folder with mnist.npz, the four IDX files or TFRecords; "
         "mnist.h5 holds no optimizer slots for Keras; model.ckpt-STEP.h5 is written as well."},
    {.name = "mnist_dist",
     .program = "mnist_dist.py of Keras",
     .train = kMnistDistTrain,
     .eval = kMnistDistEval,
     .differences =
         "Ranks share the data; it trains without TF_CONFIG as well; TensorBoard tags are "
         "TF-Slim's."},
    {.name = "export_inference_graph",
     .program = "TF-Slim's export_inference_graph",
     .exporting = kExportInferenceGraph,
     .argparse_flags = kExportInferenceGraphFlags,
     .differences =
         "For `carole export`: video nets do not exist; names of nodes between input and "
         "outputs are shorter; --freeze writes the weights as freeze_graph does."},
    {.name = "own_images",
     .program = "small data sets",
     .train = kOwnImagesTrain,
     .eval = kOwnImagesEval,
     .required = "train_dir",
     .differences = "The rate and the statistics of batch norm fit the length of the "
                    "run, and the best weights are kept in train_dir/best."},
};

// The arguments of CommandLine::AddValueAlias().
struct ValueAlias {
  const char* name;
  const char* flag;
  const char* value = "{}";
  const char* allowed = "";
};
constexpr ValueAlias kValueAliases[] = {
    {"resnet_size", "model_name", "imagenet_resnet_v2_{}", "18,34,50,101,152,200"},
    {"num_intra_threads", "threads"},
};

// Whether a text is a value of type T that fulfills `predicate`.
template <typename T, typename Predicate>
bool Is(const std::string& value, Predicate predicate) {
  T parsed{};
  return !ReadValue(value, parsed) && predicate(parsed);
}
bool IsOneOf(const std::string& value, std::initializer_list<std::string_view> choices) {
  return std::find(choices.begin(), choices.end(), value) != choices.end();
}

// Functions of type CommandLine::DescribeWanted. They return "" for a value that the other program
// accepted, else a description of the values that it accepted.
std::string Int(const std::string& value) {
  return Is<int64_t>(value, [](int64_t) { return true; }) ? "" : "a whole number";
}
std::string Count(const std::string& value) {
  return Is<int64_t>(value, [](int64_t n) { return n >= 0; }) ? "" : "a whole number of at least 0";
}
std::string Number(const std::string& value) {
  return Is<double>(value, [](double x) { return std::isfinite(x); }) ? "" : "a finite number";
}
std::string Bool(const std::string& value) {
  return Is<bool>(value, [](bool) { return true; }) ? "" : "true or false";
}
std::string Layout(const std::string& value) {
  constexpr const char* kWanted = "channels_first or channels_last";
  return IsOneOf(value, {"channels_first", "channels_last"}) ? "" : kWanted;
}
std::string Processor(const std::string& value) {
  return IsOneOf(value, {"CPU", "GPU"}) ? "" : "CPU or GPU";
}
std::string CifarLayers(const std::string& value) {
  constexpr const char* kWanted = "a number of layers 6n + 2, such as 44";
  return Is<int64_t>(value, [](int64_t n) { return (n - 2) % 6 == 0; }) ? "" : kWanted;
}
// Quantization would change the result, so a command that does not know the flag accepts only
// "off".
std::string NotQuantized(const std::string& value) {
  constexpr const char* kWanted = "false; train has --quantize_delay, eval and export --quantize";
  return Is<bool>(value, [](bool quantized) { return !quantized; }) ? "" : kWanted;
}
std::string NeverQuantized(const std::string& value) {
  constexpr const char* kWanted = "-1; only train has a delay, eval and export have --quantize";
  return Is<int64_t>(value, [](int64_t step) { return step < 0; }) ? "" : kWanted;
}

// The arguments of CommandLine::AddIgnored(). `instead` completes "Accepted without effect: ...".
struct IgnoredFlag {
  const char* name;
  const char* instead;
  CommandLine::DescribeWanted describe_wanted = nullptr;
};
constexpr const char* kRanks =
    "mpirun -np N or srun starts N ranks, each with one replica and its own --batch_size";
constexpr const char* kServers = "there are no parameter servers; gradients are summed over ranks";
constexpr const char* kLog = "the log goes to standard error";
constexpr IgnoredFlag kIgnoredFlags[] = {
    // TF-Slim
    {"master", "there are no sessions; ranks communicate through MPI"},
    {"num_clones", kRanks, Int},
    {"worker_replicas", kRanks, Int},
    {"task", kRanks, Int},
    {"num_ps_tasks", kServers, Int},
    {"num_readers", "records are read by position; see --num_preprocessing_threads", Int},
    {"verbosity", kLog},
    {"v", kLog, Int},
    {"stderrthreshold", kLog},
    {"logger_levels", kLog},
    {"quantize_delay", "weights are not quantized", NeverQuantized},
    // the UAI platform
    {"num_gpus", "mpirun or srun starts the ranks", Count},
    // imagenet_main
    {"data_format", "kernels choose the layout; checkpoints are the same in any layout", Layout},
    {"variable_strategy", "each rank holds all variables", Processor},
    {"use_distortion_for_training",
     "imagenet_main ignored it as well; training images are distorted"},
    {"num_layers", "imagenet_main ignored it as well; --resnet_size chooses the net", CifarLayers},
    {"batch_norm_decay", "imagenet_main ignored it as well; the net uses 0.997", Number},
    {"batch_norm_epsilon", "imagenet_main ignored it as well; the net uses 1e-5", Number},
    {"num_inter_threads", "imagenet_main ignored it as well; see --threads", Int},
};
constexpr IgnoredFlag kIgnoredBools[] = {
    {"clone_on_cpu", "--backend chooses the device", Bool},
    {"alsologtostderr", kLog, Bool},
    {"logtostderr", kLog, Bool},
    {"showprefixforinfo", kLog, Bool},
    {"quantize", "weights are not quantized", NotQuantized},
    {"sync", "training is always synchronous", Bool},
    {"log_device_placement", "`carole bench train` shows where the time of a step goes", Bool},
};

// Returns the names of the recipes that fit the command. One for exporting needs its flags.
std::string NamesOfRecipes(const CommandLine& line) {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : kRecipes) {
    if (recipe.exporting.empty() || line.HasFlag(std::string(recipe.exporting.front().flag)))
      names.push_back(recipe.name);
  }
  return JoinTexts(names);
}

// Returns the recipe that a --config file names, or "". Errors in the file are reported when it is
// parsed.
std::string RecipeNameInFile(std::string path) try {
  if (!ExpandHome(path).empty()) return "";
  for (const ConfigEntry& entry : ReadConfigFile(path)) {
    if (entry.name == "recipe" && entry.values.size() == 1) return entry.values[0];
  }
  return "";
} catch (const UsageError&) {
  return "";
}

// Returns the last value of a flag in words that are not parsed yet, or "".
std::string LastValue(std::span<const std::string> words, std::string_view flag) {
  std::string value;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    if (word.starts_with("--")) word.remove_prefix(1);
    if (!word.starts_with(flag)) continue;
    word.remove_prefix(flag.size());
    if (word.empty() && i + 1 < words.size()) value = words[i + 1];
    if (word.starts_with('=')) value = word.substr(1);
  }
  return value;
}

// Returns the recipe that is named on a command line that is not parsed yet, else in its --config
// file, else `default_name`. The recipe must be known before parsing, since it decides which flags
// may be abbreviated.
std::string FindRecipeName(std::span<const std::string> words, const std::string& default_name) {
  if (std::string named = LastValue(words, "-recipe"); !named.empty()) return named;
  const std::string file = LastValue(words, "-config");
  const std::string named = file.empty() ? "" : RecipeNameInFile(file);
  return named.empty() ? default_name : named;
}

}  // namespace

const Recipe& FindRecipe(std::string_view name) {
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == name) return recipe;
  }
  throw UsageError(fmt::format("[flags] --recipe: no such recipe: got {}, want one of {}", name,
                               JoinNames(kRecipes)));
}

void AddRecipeFlags(CommandLine& line, std::string& recipe) {
  line.Group("General");
  line.Add("recipe", recipe,
           "Program whose defaults are used; --help shows them. " + OneOf(NamesOfRecipes(line)),
           HelpLevel::kBasic);
  for (const ValueAlias& alias : kValueAliases) {
    if (line.HasFlag(alias.flag))
      line.AddValueAlias(alias.name, alias.flag, alias.value, alias.allowed);
  }
  for (const auto& [name, instead, describe_wanted] : kIgnoredFlags) {
    if (!line.HasFlag(name)) line.AddIgnored(name, instead, describe_wanted);
  }
  for (const auto& [name, instead, describe_wanted] : kIgnoredBools) {
    if (!line.HasFlag(name)) line.AddIgnoredBool(name, instead, describe_wanted);
  }
}

bool ParseWithRecipe(CommandLine& line, const std::vector<std::string>& arguments,
                     const std::string& recipe, std::span<const FlagDefault> Recipe::*defaults) {
  auto apply = [&](std::string_view name) {
    for (const FlagDefault& d : FindRecipe(name).*defaults)
      line.SetDefault(std::string(d.flag), std::string(d.value));
  };
  const std::string named = FindRecipeName(arguments, recipe);
  line.ParseLikeArgparse(FindRecipe(named).argparse_flags);
  // Help is printed before flags have values, but it shows the recipe's defaults.
  line.BeforeHelp([&] {
    apply(named);
    const Recipe& shown = FindRecipe(named);
    line.SetNote(fmt::format("Differences from {}", shown.program), std::string(shown.name),
                 std::string(shown.differences));
  });
  if (!line.Parse(arguments)) return false;
  const Recipe& chosen = FindRecipe(recipe);
  const std::string required(chosen.required);
  if (defaults == &Recipe::train && !required.empty() && line.HasFlag(required) &&
      !line.IsGiven(required)) {
    throw UsageError(fmt::format("[flags] --{}: missing; --recipe={} has no default for it",
                                 required, chosen.name));
  }
  apply(recipe);
  return true;
}

}  // namespace carole::commands
