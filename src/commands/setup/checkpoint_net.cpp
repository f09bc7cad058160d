#include "src/commands/setup/checkpoint_net.h"

#include <fmt/format.h>

#include "io/datasets/datasets.h"
#include "src/commands/setup/evaluation.h"
#include "src/core/error.h"

namespace carole::commands {

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
  if (model.num_classes == 0 && !pipeline.dataset_dir.empty()) {
    model.num_classes = io::NumClasses(io::FindDataset(data.dataset_name), pipeline.dataset_dir) -
                        pipeline.labels_offset;
  }
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
