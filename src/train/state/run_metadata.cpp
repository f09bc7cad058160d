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

std::string_view TagOf(MetadataReader reader) {
  return reader == MetadataReader::kTraining ? "train" : "eval";
}

// Returns what to do if the data has other classes than the checkpoint.
std::string AdviceForOtherClasses(MetadataReader reader) {
  if (reader == MetadataReader::kEvaluation)
    return "evaluate with data that has the classes of the checkpoint";
  return fmt::format("choose another {}, or fine-tune into one with {}", Option("train_dir"),
                     Option("checkpoint_path"));
}

void CompareClasses(MetadataReader reader, const std::string& before, const std::string& now) {
  constexpr size_t kMaxNames = 3;
  std::vector<std::string> known = Lines(before), given = Lines(now), renamed;
  for (size_t i = 0; i < std::min(known.size(), given.size()); ++i) {
    if (known[i] == given[i]) continue;
    const char* when = renamed.empty() ? " when the checkpoint was written" : "";
    renamed.push_back(fmt::format("class {} was {}{} and is {} now", i, known[i], when, given[i]));
  }
  if (renamed.empty()) return;
  const size_t count = known.size();
  std::ranges::sort(known);
  std::ranges::sort(given);
  if (known == given) {
    throw ConfigError(
        fmt::format("[{}] class names: {}: got the same names in another order, so labels would "
                    "mean other classes; use the data that training started with",
                    TagOf(reader), renamed.front()));
  }
  LogWarning(TagOf(reader), "class names: {} of {} differ: {}; if these are other classes, {}",
             renamed.size(), count, JoinFirst(renamed, kMaxNames), AdviceForOtherClasses(reader));
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

void LogDifference(LogLevel level, MetadataReader reader, const RunMetadata& before,
                   const RunMetadata& now, const char* name, std::string_view what,
                   std::string_view effect = "") {
  if (!MetadataDiffers(before, now, name)) return;
  const char* format = reader == MetadataReader::kTraining ? kResumeFormat : kEvaluationFormat;
  LogLine(level, TagOf(reader),
          fmt::format(fmt::runtime(format), what, before.at(name), now.at(name), effect));
}

// Compares the attributes that define the meaning of labels and pixels.
void CompareData(MetadataReader reader, const RunMetadata& before, const RunMetadata& now) {
  for (const auto& [name, what] : {std::pair{kDataset, Option("dataset_name")},
                                   {kPreprocessing, Option("preprocessing_name")},
                                   {kImageSize, std::string("image size")},
                                   {kLabelsOffset, Option("labels_offset")}})
    LogDifference(LogLevel::kWarning, reader, before, now, name, what);
  if (MetadataDiffers(before, now, kClassNames))
    CompareClasses(reader, before.at(kClassNames), now.at(kClassNames));
}

}  // namespace

bool MetadataDiffers(const RunMetadata& before, const RunMetadata& now, const char* name) {
  const auto old_value = before.find(name), new_value = now.find(name);
  return old_value != before.end() && new_value != now.end() &&
         old_value->second != new_value->second;
}

void CompareRunMetadata(const RunMetadata& before, const RunMetadata& now) {
  constexpr MetadataReader kReader = MetadataReader::kTraining;
  // Precision: weights and slots are fp32 in any case. Batch size: earlier steps count as if they
  // had had the new size.
  LogDifference(LogLevel::kInfo, kReader, before, now, kPrecision, "precision");
  LogDifference(
      LogLevel::kInfo, kReader, before, now, kGlobalBatch, "global batch size",
      fmt::format(" samples; options in epochs (learning rate schedule, {}, {}) count all steps, "
                  "earlier ones too, with the new size",
                  Option("train_epochs"), Option("epochs_per_eval")));
  LogDifference(LogLevel::kWarning, kReader, before, now, kOptimizer, Option("optimizer"));
  LogDifference(LogLevel::kWarning, kReader, before, now, kQuantizeDelay, Option("quantize_delay"));
  LogDifference(LogLevel::kInfo, kReader, before, now, kRecordOrder, "records",
                "; a new epoch begins");
  LogDifference(LogLevel::kWarning, kReader, before, now, kSplit, Option("dataset_split_name"),
                "; a new epoch begins");
  for (const auto& [name, what] : {std::pair{kThreads, "threads"}, {kProcessor, "CPU"}})
    LogDifference(LogLevel::kWarning, kReader, before, now, name, what,
                  "; " + Option("reproducible") + " gives different bits");
  CompareData(kReader, before, now);
}

void RequireSameClasses(MetadataReader reader, const RunMetadata& before, const RunMetadata& now,
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
      "[{}] {}: was trained on other classes: got {} classes in the data, want {}{}; {}",
      TagOf(reader), path, now.at(kNumClasses), before.at(kNumClasses), difference,
      reader == MetadataReader::kTraining
          ? "use the data that it was trained on, or train in another " + Option("train_dir")
          : AdviceForOtherClasses(reader)));
}

void CompareEvaluationMetadata(const RunMetadata& run, const RunMetadata& evaluation) {
  CompareData(MetadataReader::kEvaluation, run, evaluation);
}

}  // namespace carole::train
