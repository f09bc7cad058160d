#include "src/train/state/run_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void CompareClasses(const std::string& before, const std::string& now) {
  std::vector<std::string> known = Lines(before), given = Lines(now);
  const auto [old_name, new_name] = std::ranges::mismatch(known, given);
  if (old_name == known.end() || new_name == given.end()) return;
  const std::string what = fmt::format("class {} was {} in training so far and is {} now",
                                       old_name - known.begin(), *old_name, *new_name);
  std::ranges::sort(known);
  std::ranges::sort(given);
  if (known == given) {
    throw ConfigError(
        fmt::format("[train] classes: {}: the same names in another order, so labels would mean "
                    "other classes; take the data that training began with",
                    what));
  }
  LogWarning("train", "{}", what);
}

// "{0} {1}" is what was, "{0} {2}" what is, {3} what comes of it.
constexpr char kGoesOn[] = "the run was {0} {1} so far and goes on {0} {2}{3}";
constexpr char kEvaluated[] = "the checkpoint's run was {0} {1}, this evaluation is {0} {2}";

void Tell(LogLevel level, const char* format, const RunMetadata& before, const RunMetadata& now,
          const char* name, std::string_view what, std::string_view effect = "") {
  if (!Differ(before, now, name)) return;
  LogLine(level, "train",
          fmt::format(fmt::runtime(format), what, before.at(name), now.at(name), effect));
}

// What labels and pixels mean.
void CompareData(const char* format, const RunMetadata& before, const RunMetadata& now) {
  for (const auto& [name, what] : {std::pair{kDataset, "on --dataset_name"},
                                   {kPreprocessing, "with --preprocessing_name"},
                                   {kImageSize, "on images of size"},
                                   {kLabelsOffset, "with --labels_offset"}})
    Tell(LogLevel::kWarning, format, before, now, name, what);
  if (Differ(before, now, kClassNames)) CompareClasses(before.at(kClassNames), now.at(kClassNames));
}

}  // namespace

bool Differ(const RunMetadata& before, const RunMetadata& now, const char* name) {
  const auto old_value = before.find(name), new_value = now.find(name);
  return old_value != before.end() && new_value != now.end() &&
         old_value->second != new_value->second;
}

void CompareRunMetadata(const RunMetadata& before, const RunMetadata& now) {
  // Weights and slots are fp32 whatever the precision; steps of another batch are counted as if
  // they had been of this one.
  Tell(LogLevel::kInfo, kGoesOn, before, now, kPrecision, "in");
  Tell(LogLevel::kInfo, kGoesOn, before, now, kGlobalBatch, "in steps of",
       " samples: what flags say in epochs (the rate's schedule, --train_epochs, "
       "--epochs_per_eval) counts all steps as of that many");
  Tell(LogLevel::kWarning, kGoesOn, before, now, kOptimizer, "with --optimizer");
  Tell(LogLevel::kInfo, kGoesOn, before, now, kRecordOrder, "with", ": an epoch begins");
  Tell(LogLevel::kWarning, kGoesOn, before, now, kSplit, "on --dataset_split_name",
       ": an epoch begins");
  for (const auto& [name, what] : {std::pair{kThreads, "with"}, {kProcessor, "on"}})
    Tell(LogLevel::kWarning, kGoesOn, before, now, name, what, ": --reproducible gives other bits");
  CompareData(kGoesOn, before, now);
}

void CompareEvaluation(const RunMetadata& run, const RunMetadata& evaluation) {
  CompareData(kEvaluated, run, evaluation);
}

}  // namespace carole::train
