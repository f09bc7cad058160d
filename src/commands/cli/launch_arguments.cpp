#include "src/commands/cli/launch_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "launch/cluster/message_text.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

// A flag of train and the name of the same flag of eval.
struct SharedFlag {
  const char* train;
  const char* eval = train;
};
constexpr SharedFlag kSharedFlags[] = {
    {"recipe"},
    {"dataset_name"},
    {"dataset_dir"},
    {"work_dir"},
    {"labels_offset"},
    {"preprocessing_name"},
    {"use_grayscale"},
    {"dct_method"},
    {"dct_scaling"},
    {"max_bad_records"},
    {"num_preprocessing_threads"},
    {"model_name"},
    {"train_image_size", "eval_image_size"},
    {"eval_batch_size"},
    {"moving_average_decay"},
    {"backend"},
    {"threads"},
};

// Returns the name of a flag: "ssh_key" for "--ssh-key=FILE" or "-ssh_key". Returns "" if the word
// is not a flag.
std::string FlagName(const std::string& word) {
  const size_t dashes = word.starts_with("--") ? 2 : 1;
  if (!word.starts_with('-') || word.size() == dashes) return "";
  std::string name = word.substr(dashes, word.find('=') - dashes);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

Arguments SelfCommand(const char* command, const Arguments& arguments) {
  Arguments words{std::filesystem::read_symlink("/proc/self/exe").string(), command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

LaunchArguments SplitAtDashes(const Arguments& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes == arguments.end() || dashes + 1 == arguments.end() || dashes[1] != "train") {
    const bool has_command = dashes != arguments.end() && dashes + 1 != arguments.end();
    throw UsageError(fmt::format(
        "[launch] command: got {}, want carole launch [FLAGS] -- train [FLAGS OF TRAIN]",
        has_command ? launch::Quote(dashes[1]) : "none"));
  }
  return {{arguments.begin(), dashes}, {dashes + 2, arguments.end()}};
}

void MoveLaunchFlags(const std::function<bool(const std::string& name)>& is_own,
                     LaunchArguments& split) {
  Arguments rest;
  for (size_t i = 0; i < split.train.size(); ++i) {
    const bool is_taken = is_own(FlagName(split.train[i]));
    Arguments& to = is_taken ? split.launch : rest;
    to.push_back(split.train[i]);
    const bool has_value = split.train[i].find('=') != std::string::npos;
    if (is_taken && !has_value && i + 1 < split.train.size()) to.push_back(split.train[++i]);
  }
  split.train = std::move(rest);
}

Arguments EvalArguments(const std::map<std::string, std::string>& given,
                        const std::string& train_dir, double timeout) {
  constexpr int kIntervalSeconds = 10;
  Arguments eval{fmt::format("--eval_interval_secs={}", kIntervalSeconds), "--until_trained",
                 fmt::format("--timeout={:g}", timeout)};
  for (const SharedFlag& flag : kSharedFlags) {
    if (const auto value = given.find(flag.train); value != given.end())
      eval.push_back(fmt::format("--{}={}", flag.eval, value->second));
  }
  eval.push_back("--checkpoint_path=" + train_dir);
  eval.push_back("--eval_dir=" + (std::filesystem::path(train_dir) / "eval").string());
  return eval;
}

}  // namespace carole::commands
