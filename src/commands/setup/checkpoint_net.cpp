#include "src/commands/setup/checkpoint_net.h"

#include <fmt/format.h>

#include "io/datasets/datasets.h"
#include "src/commands/setup/evaluation.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::commands {
namespace {

// Takes the number of classes from the data that the user named, unless it is known. Throws
// DataError if the checkpoint was trained with another number of them.
void UseClassesOfData(std::string_view tag, const train::RunMetadata& attributes,
                      CheckpointNet& flags) {
  const io::PipelineOptions& pipeline = flags.data.pipeline;
  const io::DatasetEntry& dataset = io::FindDataset(flags.data.dataset_name);
  if (dataset.num_classes == 0 && pipeline.dataset_dir.empty()) return;
  const int64_t classes =
      io::NumClasses(dataset, pipeline.dataset_dir) - int64_t{pipeline.labels_offset};
  int64_t& wanted = flags.net.model.num_classes;
  if (wanted == 0 && !pipeline.dataset_dir.empty()) wanted = classes;
  if (!attributes.contains(train::kClassNames)) return;  // a file of another program
  int64_t trained = 0;
  train::FillFromMetadata(attributes, train::kNumClasses, trained);
  if (trained == 0 || trained == classes) return;
  throw DataError(fmt::format(
      "[{}] {}: was trained on other classes: got {} classes in the data, want {}; "
      "leave {} and {} out",
      tag, flags.checkpoint.path, classes, trained, Option("dataset_name"), Option("dataset_dir")));
}

}  // namespace

void FillFromCheckpoint(std::string_view tag, const train::RunMetadata& attributes,
                        CheckpointNet& flags) {
  DataConfig& data = flags.data;
  nets::ModelOptions& model = flags.net.model;
  io::PipelineOptions& pipeline = data.pipeline;
  std::string names, dct_method;
  if (data.dataset_name.empty() && pipeline.dataset_dir.empty())
    train::FillFromMetadata(attributes, train::kClassNames, names);
  flags.class_names = SplitClassNames(names);
  const int offset = pipeline.labels_offset;
  const train::RunMetadata given{{train::kLabelsOffset, std::to_string(offset)}};
  if (offset != 0 && train::MetadataDiffers(attributes, given, train::kLabelsOffset)) {
    throw UsageError(fmt::format(
        "[{}] --labels_offset: got {}, want {}, with which {} was trained; leave the flag out", tag,
        offset, attributes.at(train::kLabelsOffset), flags.checkpoint.path));
  }
  const bool names_data = !data.dataset_name.empty() || !pipeline.dataset_dir.empty();
  const train::RunMetadata pixels{{train::kPreprocessing, data.preprocessing_name}};
  if (!data.preprocessing_name.empty() &&
      train::MetadataDiffers(attributes, pixels, train::kPreprocessing))
    LogWarning(tag, "--preprocessing_name: {} was trained with {}, this command uses {}",
               flags.checkpoint.path, attributes.at(train::kPreprocessing),
               data.preprocessing_name);
  train::FillFromMetadata(attributes, train::kNet, flags.net.model_name);
  train::FillFromMetadata(attributes, train::kDataset, data.dataset_name);
  train::FillFromMetadata(attributes, train::kPreprocessing, data.preprocessing_name);
  train::FillFromMetadata(attributes, train::kImageSize, model.image_size);
  if (data.use_grayscale) model.channels = 1;
  train::FillFromMetadata(attributes, train::kChannels, model.channels);
  train::FillFromMetadata(attributes, train::kDctMethod, dct_method);
  pipeline.dct_method = ParseDctMethod(dct_method);
  train::FillFromMetadata(attributes, train::kDctScaling, pipeline.dct_scaling);
  train::FillFromMetadata(attributes, train::kNumClasses, model.num_classes);
  train::FillFromMetadata(attributes, train::kLabelsOffset, pipeline.labels_offset);
  // Files of other programs do not say their classes, but labels.txt does.
  if (data.dataset_name.empty() && !pipeline.dataset_dir.empty()) data.dataset_name = "folder";
  if (names_data) UseClassesOfData(tag, attributes, flags);
  if (flags.net.model_name.empty()) {
    throw UsageError(
        fmt::format("[{}] {}: does not say which net it holds; name it with --model_name", tag,
                    flags.checkpoint.path));
  }
}

void FillSizes(const nets::NetEntry& entry, CheckpointNet& net) {
  nets::ModelOptions& options = net.net.model;
  if (options.image_size == 0) options.image_size = entry.image_size;
  if (options.channels != 0) return;
  options.channels = net.data.dataset_name.empty()
                         ? entry.channels
                         : io::FindDataset(net.data.dataset_name).channels;
}

int DecodedChannels(const CheckpointNet& flags) {
  const int channels = static_cast<int>(flags.net.model.channels);
  if (channels == 1 && !flags.data.dataset_name.empty())
    return io::FindDataset(flags.data.dataset_name).channels;
  return flags.data.use_grayscale ? 3 : channels;
}

std::vector<std::string> ClassNamesOf(const CheckpointNet& flags, int64_t num_classes) {
  std::vector<std::string> names = flags.class_names;
  if (names.empty() && !flags.data.dataset_name.empty()) {
    return NetClassNames(io::FindDataset(flags.data.dataset_name), flags.data.pipeline.dataset_dir,
                         flags.data.pipeline.labels_offset, num_classes);
  }
  for (auto k = static_cast<int64_t>(names.size()); k < num_classes; ++k)
    names.push_back(std::to_string(k));
  return names;
}

}  // namespace carole::commands
