// What a run's checkpoints tell of it in their attributes, beside what goes on from them.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <type_traits>

namespace carole::train {

// Attributes' names.
inline constexpr char kNet[] = "net";
inline constexpr char kDataset[] = "dataset";
inline constexpr char kSplit[] = "dataset_split_name";  // that is trained on
inline constexpr char kPreprocessing[] = "preprocessing";
inline constexpr char kImageSize[] = "image_size";
inline constexpr char kChannels[] = "channels";
inline constexpr char kDctMethod[] = "dct_method";    // of JPEGs
inline constexpr char kDctScaling[] = "dct_scaling";  // 0 or 1
inline constexpr char kNumClasses[] = "num_classes";
inline constexpr char kLabelsOffset[] = "labels_offset";
inline constexpr char kPrecision[] = "precision";
inline constexpr char kOptimizer[] = "optimizer";
inline constexpr char kVersion[] = "version";  // of the program
inline constexpr char kMaxSteps[] = "max_number_of_steps";
inline constexpr char kFlags[] = "flags";               // that were given
inline constexpr char kGlobalBatch[] = "global_batch";  // samples of a step
inline constexpr char kClassNames[] = "class_names";    // a line for each
inline constexpr char kRecordOrder[] = "record_order";  // what a place in an epoch depends on
inline constexpr char kSkipped[] = "skipped_records";   // of the epoch so far, by RecordFault
inline constexpr char kThreads[] = "threads";           // of each rank of a reproducible run
inline constexpr char kProcessor[] = "processor";       // of the same

using RunMetadata = std::map<std::string, std::string>;

// Tells in the log what differs for a run that goes on; as a warning where its weights may mean
// something else then. Throws ConfigError for the same classes in another order.
void CompareRunMetadata(const RunMetadata& before, const RunMetadata& now);

// The same for an evaluation of what the run left.
void CompareEvaluation(const RunMetadata& run, const RunMetadata& evaluation);

// What the run tells stands in for a value that nobody gave: an empty text, a 0.
template <typename T>
void FillIn(const RunMetadata& facts, const char* name, T& value) {
  const auto found = facts.find(name);
  if (found == facts.end() || value != T()) return;
  if constexpr (std::is_integral_v<T>) {
    value = static_cast<T>(std::strtoll(found->second.c_str(), nullptr, 10));
  } else {
    value = found->second;
  }
}

// Whether both tell it, and not the same.
bool Differ(const RunMetadata& before, const RunMetadata& now, const char* name);

}  // namespace carole::train
