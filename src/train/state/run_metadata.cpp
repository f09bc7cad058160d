#include "src/train/state/run_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"

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
  const std::string what =
      fmt::format("class {} was {} when the checkpoint was written and is {} now",
                  old_name - known.begin(), *old_name, *new_name);
  std::ranges::sort(known);
  std::ranges::sort(given);
  if (known == given) {
    throw ConfigError(
        fmt::format("[train] class names: {}: got the same names in another order, so labels would "
                    "mean other classes; use the data that training started with",
                    what));
  }
  LogWarning("train", "class names: {}", what);
}

// Returns the names that `all` has in addition to those of `known`.
std::vector<std::string> NewNames(const std::vector<std::string>& all,
                                  const std::vector<std::string>& known) {
  std::vector<std::string> added;
  std::ranges::copy_if(all, std::back_inserter(added), [&](const std::string& name) {
    return std::ranges::find(known, name) == known.end();
  });
  return added;
}

// {0}: an option or property; {1}, {2}: its old and new value; {3}: the effect.
constexpr char kResumeFormat[] = "{0}: the run used {1} so far and now continues with {2}{3}";
constexpr char kEvaluationFormat[] =
    "{0}: the checkpoint was trained with {1}, this evaluation uses {2}";

void LogDifference(LogLevel level, const char* format, const RunMetadata& before,
                   const RunMetadata& now, const char* name, std::string_view what,
                   std::string_view effect = "") {
  if (!MetadataDiffers(before, now, name)) return;
  LogLine(level, "train",
          fmt::format(fmt::runtime(format), what, before.at(name), now.at(name), effect));
}

// Compares the attributes that define the meaning of labels and pixels.
void CompareData(const char* format, const RunMetadata& before, const RunMetadata& now) {
  for (const auto& [name, what] : {std::pair{kDataset, Option("dataset_name")},
                                   {kPreprocessing, Option("preprocessing_name")},
                                   {kImageSize, std::string("image size")},
                                   {kLabelsOffset, Option("labels_offset")}})
    LogDifference(LogLevel::kWarning, format, before, now, name, what);
  if (MetadataDiffers(before, now, kClassNames))
    CompareClasses(before.at(kClassNames), now.at(kClassNames));
}

}  // namespace

bool MetadataDiffers(const RunMetadata& before, const RunMetadata& now, const char* name) {
  const auto old_value = before.find(name), new_value = now.find(name);
  return old_value != before.end() && new_value != now.end() &&
         old_value->second != new_value->second;
}

void CompareRunMetadata(const RunMetadata& before, const RunMetadata& now) {
  // Precision: weights and slots are fp32 in any case. Batch size: earlier steps count as if they
  // had had the new size.
  LogDifference(LogLevel::kInfo, kResumeFormat, before, now, kPrecision, "precision");
  LogDifference(
      LogLevel::kInfo, kResumeFormat, before, now, kGlobalBatch, "global batch size",
      fmt::format(" samples; options in epochs (learning rate schedule, {}, {}) count all steps, "
                  "earlier ones too, with the new size",
                  Option("train_epochs"), Option("epochs_per_eval")));
  LogDifference(LogLevel::kWarning, kResumeFormat, before, now, kOptimizer, Option("optimizer"));
  LogDifference(LogLevel::kInfo, kResumeFormat, before, now, kRecordOrder, "records",
                "; a new epoch begins");
  LogDifference(LogLevel::kWarning, kResumeFormat, before, now, kSplit,
                Option("dataset_split_name"), "; a new epoch begins");
  for (const auto& [name, what] : {std::pair{kThreads, "threads"}, {kProcessor, "CPU"}})
    LogDifference(LogLevel::kWarning, kResumeFormat, before, now, name, what,
                  "; " + Option("reproducible") + " gives different bits");
  CompareData(kResumeFormat, before, now);
}

void RequireSameClasses(const RunMetadata& before, const RunMetadata& now,
                        const std::string& path) {
  constexpr size_t kMaxNames = 8;
  if (MetadataDiffers(before, now, kNet) || !MetadataDiffers(before, now, kNumClasses) ||
      !MetadataDiffers(before, now, kClassNames))
    return;
  const std::vector<std::string> known = Lines(before.at(kClassNames));
  const std::vector<std::string> given = Lines(now.at(kClassNames));
  std::string difference;
  for (const auto& [what, names] :
       {std::pair{"new", NewNames(given, known)}, std::pair{"missing", NewNames(known, given)}}) {
    if (!names.empty()) difference += fmt::format("; {}: {}", what, JoinFirst(names, kMaxNames));
  }
  throw DataError(fmt::format(
      "[train] {}: was trained on other classes: got {} classes in the data, want {}{}; use the "
      "data that it was trained on, or train in another {}",
      path, now.at(kNumClasses), before.at(kNumClasses), difference, Option("train_dir")));
}

void CompareEvaluationMetadata(const RunMetadata& run, const RunMetadata& evaluation) {
  CompareData(kEvaluationFormat, run, evaluation);
}

}  // namespace carole::train
