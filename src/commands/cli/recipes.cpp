#include "src/commands/cli/recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::commands {
namespace {

// Of train_image_classifier and eval_image_classifier.
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

// UAI's ResNet of TensorFlow 1.4 and 2.0 on ImageNet; tensorflow/models has another program of this
// name, with other flags.
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

constexpr Recipe kRecipes[] = {
    {.name = "train_image_classifier",
     .program = "TF-Slim",
     .argparse_flags = kSlimFlags,
     .otherwise =
         "training is synchronous, ranks share the data out, an epoch ends with a short "
         "batch, moving averages follow the update, moving statistics are the ranks' mean, "
         "not the first clone's (--noaverage_statistics), schedules count all ranks' batches "
         "(--sync_replicas --replicas_to_aggregate=N: as N would), and evaluation counts each "
         "image once"},
    {.name = "imagenet_main",
     .program = "UAI's ResNet on ImageNet",
     .train = kImagenetMainTrain,
     .eval = kImagenetMainEval,
     .argparse_flags = kImagenetMainFlags,
     .required = "output_dir",
     .otherwise = "ranks share the data out, moving statistics are updated (version 2.0 did "
                  "neither) and the ranks' mean, an epoch ends with a short batch, first weights "
                  "are drawn as in version 1.4, a short last batch weighs by its images, "
                  "--epochs_per_eval says how often it evaluates, and "
                  "TensorBoard's tags are TF-Slim's"},
    {.name = "mnist",
     .program = "mnist.py of Keras",
     .train = kMnistTrain,
     .eval = kMnistEval,
     .otherwise =
         "data_dir is mnist.npz, or the folder of it, of the four IDX files or of "
         "TFRecords; mnist.h5 holds no slots for Keras, and model.ckpt-STEP.h5 is there too"},
    {.name = "mnist_dist",
     .program = "mnist_dist.py of Keras",
     .train = kMnistDistTrain,
     .eval = kMnistDistEval,
     .otherwise =
         "ranks share the data out, it trains without TF_CONFIG too, and TensorBoard's tags "
         "are TF-Slim's"},
};

struct Spelling {
  const char* name;
  const char* flag;
  const char* value = "{}";
  const char* allowed = "";
};
constexpr Spelling kSpellings[] = {
    {"resnet_size", "model_name", "imagenet_resnet_v2_{}", "18,34,50,101,152,200"},
    {"num_intra_threads", "threads"},
};

// Whether a value is a T of which `fits` holds.
template <typename T, typename Fits>
bool Is(const std::string& value, Fits fits) {
  T parsed{};
  return CLI::detail::lexical_cast(value, parsed) && fits(parsed);
}
bool IsOneOf(const std::string& value, std::initializer_list<std::string_view> choices) {
  return std::find(choices.begin(), choices.end(), value) != choices.end();
}

// What is wanted, where a value is none that the other program took.
std::string Int(const std::string& value) {
  return Is<int64_t>(value, [](int64_t) { return true; }) ? "" : "a whole number";
}
std::string Count(const std::string& value) {
  return Is<int64_t>(value, [](int64_t n) { return n >= 0; }) ? "" : "a whole number from 0 on";
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
  return Is<int64_t>(value, [](int64_t n) { return (n - 2) % 6 == 0; }) ? "" : "6n + 2, as 44";
}
// The same of what would change the result and is not there.
std::string NotQuantized(const std::string& value) {
  constexpr const char* kWanted = "false: this version of carole cannot quantize";
  return Is<bool>(value, [](bool quantized) { return !quantized; }) ? "" : kWanted;
}
std::string NeverQuantized(const std::string& value) {
  constexpr const char* kWanted = "-1: this version of carole cannot quantize";
  return Is<int64_t>(value, [](int64_t step) { return step < 0; }) ? "" : kWanted;
}

struct WithoutMeaning {
  const char* name;
  const char* instead;
  CommandLine::Refuse refuse = nullptr;
};
constexpr const char* kRanks =
    "mpirun -np N or srun starts N ranks, each with one replica and its own --batch_size; this "
    "run has as many as were started";
constexpr const char* kServers = "there are no parameter servers: gradients are summed over ranks";
constexpr const char* kLog = "the log is standard error";
constexpr WithoutMeaning kWithoutMeaning[] = {
    // TF-Slim
    {"master", "there are no sessions: ranks talk through MPI"},
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
    // the platform
    {"num_gpus", "mpirun or srun starts the ranks", Count},
    // imagenet_main
    {"data_format", "kernels choose the layout; checkpoints are the same either way", Layout},
    {"variable_strategy", "each rank holds all variables", Processor},
    {"use_distortion_for_training", "it had no effect there: training images are distorted"},
    {"num_layers", "it had no effect there: --resnet_size says which net", CifarLayers},
    {"batch_norm_decay", "it had no effect there: the net's is 0.997", Number},
    {"batch_norm_epsilon", "it had no effect there: the net's is 1e-5", Number},
    {"num_inter_threads", "it had no effect there: see --threads", Int},
};
constexpr WithoutMeaning kBoolsWithoutMeaning[] = {
    {"clone_on_cpu", "--backend says what computes", Bool},
    {"alsologtostderr", kLog, Bool},
    {"logtostderr", kLog, Bool},
    {"showprefixforinfo", kLog, Bool},
    {"quantize", "weights are not quantized", NotQuantized},
    {"sync", "training is always synchronous", Bool},
    {"log_device_placement", "`carole bench train` tells where the time of a step goes", Bool},
};

// What a flag file says; "" if nothing. What is wrong with it is said where it is parsed.
std::string RecipeInFile(const std::string& path) try {
  if (!RefuseFlagFile(path).empty()) return "";
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path)) {
    if (item.parents.empty() && item.name == "recipe" && item.inputs.size() == 1)
      return item.inputs[0];
  }
  return "";
} catch (const CLI::Error&) {
  return "";
}

// The last value of a flag in words that are not parsed yet; "" if there is none.
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

// What a command line says before it is parsed, else its flag file, else `usual`.
std::string RecipeIn(std::span<const std::string> words, const std::string& usual) {
  if (std::string named = LastValue(words, "-recipe"); !named.empty()) return named;
  const std::string file = LastValue(words, "-config");
  const std::string named = file.empty() ? "" : RecipeInFile(file);
  return named.empty() ? usual : named;
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
  line.Group("Recipe");
  line.Add("recipe", recipe, "whose defaults hold: " + JoinNames(kRecipes));
  line.Group("Other programs' names");
  for (const Spelling& s : kSpellings) {
    if (line.Has(s.flag)) line.AddSpelling(s.name, s.flag, s.value, s.allowed);
  }
  line.Group("Of other programs, without a meaning here");
  for (const auto& [name, instead, refuse] : kWithoutMeaning)
    line.AddIgnored(name, instead, refuse);
  for (const auto& [name, instead, refuse] : kBoolsWithoutMeaning)
    line.AddIgnoredBool(name, instead, refuse);
}

bool ParseWithRecipe(CommandLine& line, const std::vector<std::string>& arguments,
                     const std::string& recipe, std::span<const FlagDefault> Recipe::*defaults) {
  auto apply = [&](std::string_view name) {
    for (const FlagDefault& d : FindRecipe(name).*defaults)
      line.SetDefault(std::string(d.flag), std::string(d.value));
  };
  const std::string named = RecipeIn(arguments, recipe);
  line.ReadAsArgparse(FindRecipe(named).argparse_flags);
  // A help is printed before flags have values, and shows the recipe's defaults all the same.
  line.BeforeHelp([&] { apply(named); });
  if (!line.Parse(arguments)) return false;
  const Recipe& chosen = FindRecipe(recipe);
  const std::string required(chosen.required);
  if (defaults == &Recipe::train && !required.empty() && line.Has(required) &&
      !line.Given(required)) {
    throw UsageError(
        fmt::format("[flags] --{}: missing: {} has no default for it", required, chosen.program));
  }
  apply(recipe);
  return true;
}

}  // namespace carole::commands
