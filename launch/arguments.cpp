#include "launch/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/text.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

// A flag of train, its other names, and what eval calls it.
struct SharedFlag {
  const char* eval;
  std::vector<const char*> train;
};
const std::vector<const char*> kTrainDir = {"train_dir", "output_dir"};
const SharedFlag kSharedFlags[] = {
    {"recipe", {"recipe"}},
    {"dataset_name", {"dataset_name"}},
    {"dataset_dir", {"dataset_dir", "data_dir"}},
    {"work_dir", {"work_dir"}},
    {"dataset_split_name", {"eval_split_name"}},
    {"labels_offset", {"labels_offset"}},
    {"preprocessing_name", {"preprocessing_name"}},
    {"num_preprocessing_threads", {"num_preprocessing_threads"}},
    {"model_name", {"model_name"}},
    {"resnet_size", {"resnet_size"}},
    {"eval_image_size", {"train_image_size"}},
    {"moving_average_decay", {"moving_average_decay"}},
    {"checkpoint_path", kTrainDir},
    {"backend", {"backend"}},
    {"threads", {"threads"}},
};

bool IsFlag(std::string word, const std::vector<const char*>& names) {
  if (!word.starts_with("--")) return false;
  word = word.substr(2, word.find('=') - 2);
  std::replace(word.begin(), word.end(), '-', '_');
  return std::find(names.begin(), names.end(), word) != names.end();
}

// The last value of a flag that goes by any of these names.
std::optional<std::string> LastValue(const Arguments& arguments,
                                     const std::vector<const char*>& names) {
  std::optional<std::string> value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!IsFlag(arguments[i], names)) continue;
    const size_t equals = arguments[i].find('=');
    if (equals != std::string::npos) {
      value = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[i + 1];
    }
  }
  return value;
}

}  // namespace

SplitArguments Split(const Arguments& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes == arguments.end() || dashes + 1 == arguments.end() || dashes[1] != "train") {
    const bool has_command = dashes != arguments.end() && dashes + 1 != arguments.end();
    throw UsageError(fmt::format(
        "[launch] command: got {}, want carole launch [FLAGS] -- train [FLAGS OF TRAIN]",
        has_command ? Quote(dashes[1]) : "none"));
  }
  return {{arguments.begin(), dashes}, {dashes + 2, arguments.end()}};
}

void TakeFlags(const std::vector<const char*>& names, SplitArguments& split) {
  Arguments rest;
  for (size_t i = 0; i < split.train.size(); ++i) {
    const bool is_taken = IsFlag(split.train[i], names);
    Arguments& to = is_taken ? split.launch : rest;
    to.push_back(split.train[i]);
    const bool has_value = split.train[i].find('=') != std::string::npos;
    if (is_taken && !has_value && i + 1 < split.train.size()) to.push_back(split.train[++i]);
  }
  split.train = std::move(rest);
}

std::optional<std::string> FlagValue(const Arguments& arguments, const std::string& name) {
  return LastValue(arguments, {name.c_str()});
}

std::string TrainDir(const Arguments& train) { return LastValue(train, kTrainDir).value_or(""); }

Arguments EvalArguments(const Arguments& train, double timeout) {
  constexpr int kIntervalSeconds = 10;
  Arguments eval{fmt::format("--eval_interval_secs={}", kIntervalSeconds), "--until_trained",
                 fmt::format("--timeout={:g}", timeout)};
  for (const SharedFlag& flag : kSharedFlags) {
    if (const auto value = LastValue(train, flag.train))
      eval.push_back(fmt::format("--{}={}", flag.eval, *value));
  }
  const std::string folder = TrainDir(train);
  if (!folder.empty()) eval.push_back(fmt::format("--eval_dir={}/eval", folder));
  return eval;
}

}  // namespace carole::launch
