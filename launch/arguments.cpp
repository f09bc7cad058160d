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
const SharedFlag kSharedFlags[] = {
    {"recipe", {"recipe"}},
    {"dataset_name", {"dataset_name"}},
    {"dataset_dir", {"dataset_dir", "data_dir"}},
    {"work_dir", {"work_dir"}},
    {"labels_offset", {"labels_offset"}},
    {"preprocessing_name", {"preprocessing_name"}},
    {"num_preprocessing_threads", {"num_preprocessing_threads"}},
    {"model_name", {"model_name"}},
    {"eval_image_size", {"train_image_size"}},
    {"checkpoint_path", {"train_dir", "output_dir"}},
    {"backend", {"backend"}},
    {"threads", {"threads"}},
};

bool IsFlag(std::string word, const std::string& name) {
  if (!word.starts_with("--")) return false;
  word = word.substr(2, word.find('=') - 2);
  std::replace(word.begin(), word.end(), '-', '_');
  return word == name;
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

std::optional<std::string> FlagValue(const Arguments& arguments, const std::string& name) {
  std::optional<std::string> value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!IsFlag(arguments[i], name)) continue;
    const size_t equals = arguments[i].find('=');
    if (equals != std::string::npos) {
      value = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[i + 1];
    }
  }
  return value;
}

Arguments EvalArguments(const Arguments& train, double timeout) {
  constexpr int kIntervalSeconds = 10;
  Arguments eval{fmt::format("--eval_interval_secs={}", kIntervalSeconds),
                 fmt::format("--timeout={:g}", timeout)};
  std::string folder;
  for (const SharedFlag& flag : kSharedFlags) {
    for (const char* name : flag.train) {
      const auto value = FlagValue(train, name);
      if (!value) continue;
      eval.push_back(fmt::format("--{}={}", flag.eval, *value));
      if (std::string_view(flag.eval) == "checkpoint_path") folder = *value;
    }
  }
  if (!folder.empty()) eval.push_back(fmt::format("--eval_dir={}/eval", folder));
  return eval;
}

}  // namespace carole::launch
