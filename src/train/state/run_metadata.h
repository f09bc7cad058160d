// Run metadata that checkpoints store as attributes: net, data set, flags and the like. It is not
// needed to restore the weights. It fills in flags that the user omits, and it shows what changed
// since the checkpoint was written.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <type_traits>

namespace carole::train {

// Names of the attributes.
inline constexpr char kNet[] = "net";
inline constexpr char kDataset[] = "dataset";
inline constexpr char kSplit[] = "dataset_split_name";  // the split used for training
inline constexpr char kPreprocessing[] = "preprocessing";
inline constexpr char kImageSize[] = "image_size";
inline constexpr char kChannels[] = "channels";
inline constexpr char kDctMethod[] = "dct_method";    // how JPEG images are decoded
inline constexpr char kDctScaling[] = "dct_scaling";  // 0 or 1
inline constexpr char kNumClasses[] = "num_classes";
inline constexpr char kLabelsOffset[] = "labels_offset";
inline constexpr char kPrecision[] = "precision";
inline constexpr char kOptimizer[] = "optimizer";
inline constexpr char kQuantizeDelay[] = "quantize_delay";     // of a quantized net
inline constexpr char kVersion[] = "version";                  // of the program
inline constexpr char kBatchNormDecay[] = "batch_norm_decay";  // 0: the net has no batch norm
inline constexpr char kMaxSteps[] = "max_number_of_steps";
inline constexpr char kFlags[] = "flags";               // the flags that the user gave
inline constexpr char kGlobalBatch[] = "global_batch";  // samples per step, over all ranks
inline constexpr char kClassNames[] = "class_names";    // one per line
inline constexpr char kRecordOrder[] = "record_order";  // identifies the records and their order
inline constexpr char kSkipped[] = "skipped_records";   // in this epoch so far, by RecordFault
inline constexpr char kThreads[] = "threads";           // per rank, of a reproducible run
inline constexpr char kProcessor[] = "processor";       // CPU model, of a reproducible run

using RunMetadata = std::map<std::string, std::string>;  // attribute name -> value

// The program that compares a checkpoint's metadata with its own decides tag and advice of
// messages.
enum class MetadataReader { kTraining, kEvaluation };

// Compares the metadata of a checkpoint (`before`) with that of the run that resumes from it
// (`now`), and logs each difference. It is a warning if the weights may then have another meaning.
// Throws ConfigError if the class names are the same but in another order.
void CompareRunMetadata(const RunMetadata& before, const RunMetadata& now);

// Does the same for an evaluation: compares the metadata of the checkpoint's run with the data that
// the evaluation uses. Throws ConfigError if the class names are the same but in another order.
void CompareEvaluationMetadata(const RunMetadata& run, const RunMetadata& evaluation);

// Throws DataError, which names the classes that differ, if a checkpoint of the same net was
// trained with another number of classes. `path` is that of the checkpoint.
void RequireSameClasses(MetadataReader reader, const RunMetadata& before, const RunMetadata& now,
                        const std::string& path);

// Sets `value` from the attribute `name` if the user did not set it (it is an empty text or 0) and
// the attribute exists.
template <typename T>
void FillFromMetadata(const RunMetadata& metadata, const char* name, T& value) {
  const auto found = metadata.find(name);
  if (found == metadata.end() || value != T()) return;
  if constexpr (std::is_integral_v<T>) {
    value = static_cast<T>(std::strtoll(found->second.c_str(), nullptr, 10));
  } else {
    value = found->second;
  }
}

// Returns true if both have the attribute `name`, with different values.
bool MetadataDiffers(const RunMetadata& before, const RunMetadata& now, const char* name);

}  // namespace carole::train
