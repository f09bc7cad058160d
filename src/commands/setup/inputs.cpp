#include "src/commands/setup/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "collectives/ranks/rank_local_work.h"
#include "collectives/ranks/settings_check.h"
#include "io/preprocessing/preprocessing.h"
#include "io/records/record_index.h"
#include "launch/machine/cores.h"
#include "src/commands/flags/flag_check.h"
#include "src/core/error.h"
#include "src/core/hash.h"
#include "src/core/text/join_names.h"

namespace carole::commands {

namespace {

namespace fs = std::filesystem;

// Returns how the net normalizes images that arrive as bytes, or nullopt if they arrive as fp32.
std::optional<NormalizeAttributes> ChooseNormalize(const DataConfig& dataset,
                                                   const io::PreprocessingEntry& preprocessing,
                                                   const io::Augmentations& augmentations) {
  const bool whole_pixels =
      preprocessing.has_integer_pixels && !dataset.use_grayscale && augmentations.empty();
  const bool wanted =
      dataset.input_dtype == "auto" ? whole_pixels : dataset.input_dtype == Name(DType::kU8);
  if (!wanted) return std::nullopt;
  if (!augmentations.batches.empty()) {
    throw UsageError(
        fmt::format("[flags] --input_dtype: images of bytes cannot be mixed ({}): got "
                    "uint8, want fp32 or auto",
                    augmentations.Describe()));
  }
  const io::Normalization& n = io::NormalizationOf(preprocessing);
  return NormalizeAttributes{.subtract = n.subtract, .multiply = n.multiply};
}

[[noreturn]] void ThrowOffsetTooLarge(const io::DatasetEntry& dataset,
                                      const io::PipelineOptions& pipeline) {
  constexpr int kFewestClasses = 2;
  constexpr size_t kMaxNames = 3;
  const std::vector<std::string> names = io::ClassNames(dataset, pipeline.dataset_dir);
  const int classes = io::NumClasses(dataset, pipeline.dataset_dir);
  const int largest = std::max(0, classes - kFewestClasses);
  throw UsageError(fmt::format(
      "[flags] --labels_offset={}: too few classes are left: got {} of the {} classes in {} ({}), "
      "want {} or more; {}",
      pipeline.labels_offset, std::max(0, classes - pipeline.labels_offset), classes,
      pipeline.dataset_dir, JoinFirst(names, kMaxNames), kFewestClasses,
      largest == 0 ? "leave the flag out"
                   : fmt::format("leave the flag out, or set at most {}", largest)));
}

}  // namespace

std::string PreprocessingOf(const nets::NetEntry& net, const std::string& flag) {
  if (flag.empty()) return std::string(net.preprocessing);
  const nets::NetEntry* const named = nets::TryFindNet(flag);
  return named != nullptr ? std::string(named->preprocessing) : flag;
}

void RequireDatasetDir(const DataConfig& dataset) {
  if (dataset.pipeline.dataset_dir.empty())
    throw UsageError("[flags] --dataset_dir: missing; name the folder of the TFRecords");
}

NetInput ResolveNetInput(const NetConfig& net, const DataConfig& dataset) {
  NetInput input;
  input.net = &nets::FindNet(net.model_name);
  input.dataset = &io::FindDataset(dataset.dataset_name);
  RequireDatasetDir(dataset);
  input.preprocessing = PreprocessingOf(*input.net, dataset.preprocessing_name);
  input.image_size =
      static_cast<int>(net.model.image_size > 0 ? net.model.image_size : input.net->image_size);
  const io::PreprocessingEntry& preprocessing = io::FindPreprocessing(input.preprocessing);
  io::CheckPreprocessingSize(preprocessing, input.image_size, input.image_size);
  input.augmentations = dataset.augmentations.Active();
  input.quantization = net.model.quantization;
  input.normalize = ChooseNormalize(dataset, preprocessing, input.augmentations);
  input.channels = dataset.use_grayscale ? 1 : input.dataset->channels;
  input.num_classes =
      io::NumClasses(*input.dataset, dataset.pipeline.dataset_dir) - dataset.pipeline.labels_offset;
  if (input.num_classes < 2) {
    if (dataset.pipeline.labels_offset == 0)
      throw DataError(
          fmt::format("[data] --dataset_dir={}: labels.txt: too few classes: got {}, want 2 or "
                      "more lines INDEX:NAME",
                      dataset.pipeline.dataset_dir, input.num_classes));
    ThrowOffsetTooLarge(*input.dataset, dataset.pipeline);
  }
  return input;
}

void AddInputFlags(CommandLine& line, DataConfig& flags) {
  line.Group("Data");
  line.Add("fast_mode", flags.pipeline.fast_mode,
           "For the inception preprocessing: only bilinear resizing, brightness and "
           "saturation; --nofast_mode adds three ways of resizing, hue and contrast.");
  line.Add("min_crop_area", flags.pipeline.min_crop_area,
           "For the preprocessings of Inception, VGG and ResNet: the smallest share of a square "
           "image that a random crop takes; 0: the crops of TF-Slim, from 5 % on.")
      .Between(0, 1);
  line.Add("use_bounding_boxes", flags.pipeline.use_bounding_boxes,
           "For the inception preprocessing: let each crop cover part of an annotated object; "
           "TF-Slim's trainer ignores the boxes.");
  line.Add("input_dtype", flags.input_dtype,
           "Type of images that the net gets; uint8 sends a quarter of the bytes to a GPU but "
           "rounds resized and distorted pixels; auto: uint8 if that changes nothing.")
      .OneOf({"auto", "fp32", "uint8"});
  AddSettings(line, flags.augmentations.settings());
  line.Add("shuffle_block_records", flags.pipeline.shuffle_block_records,
           "For disks that seek slowly: shuffle blocks of this many records, then records within "
           "16 blocks; 0: shuffle all records.")
      .Between(0, 1LL << 32);
}

int DecodeThreads(const DataConfig& flags, const RankContext& context) {
  // Decoding stalls on memory and branches, so a core's second hyperthread speeds it up. It gains
  // nothing while vector kernels compute on the same core.
  const bool on_gpu = context.backend().is_asynchronous();
  const int room = on_gpu ? context.hyperthreads() : context.cores();
  if (flags.num_preprocessing_threads > 0) return std::min(flags.num_preprocessing_threads, room);
  if (on_gpu)
    return launch::ThreadsNextToGpu(room, context.communicator().local_size() < context.size());
  const int free = room - context.backend().threads();
  return free > 0 ? free : room;
}

io::PipelineOptions MakePipelineOptions(const DataConfig& flags, const NetInput& input,
                                        const RankContext& context, int64_t local_batch) {
  io::PipelineOptions options = flags.pipeline;
  options.dataset = input.dataset;
  options.preprocessing = &io::FindPreprocessing(input.preprocessing);
  options.height = options.width = input.image_size;
  options.channels = input.channels;
  options.num_classes = input.num_classes;
  options.local_batch = local_batch;
  options.rank = context.rank();
  options.size = context.size();
  options.threads = DecodeThreads(flags, context);
  return options;
}

void SetTraining(const NetInput& input, io::PipelineOptions& options) {
  options.training = options.shuffle = options.repeat = true;
  options.dtype = input.training_dtype();
  options.augmentations = input.augmentations;
}

int64_t CountSamples(const DataConfig& flags, const NetInput& input, const RankContext& context) {
  const std::string& split = flags.pipeline.split;
  io::RecordIndex index;
  collectives::RunRankLocal(context.communicator(), "records", [&] {
    index = io::LoadRecordIndex(
        {.shards = io::FindShards(*input.dataset, split, flags.pipeline.dataset_dir),
         .work_dir = flags.pipeline.work_dir,
         .threads = DecodeThreads(flags, context),
         .skip_damage = flags.pipeline.max_bad_records > 0});
  });
  std::string shards;
  for (const io::ShardIndex& shard : index.shards()) {
    shards += fmt::format("{} {} {}\n", fs::path(shard.path).filename().string(), shard.file_bytes,
                          shard.num_records());
  }
  collectives::CheckSettingsMatch(
      context.communicator(),
      {{"records of " + split, std::to_string(index.num_records())},
       {"names and sizes of its shards", fmt::format("hash {:016x}", Fnv1a64(shards))}});
  return index.num_records();
}

nets::ModelOptions MakeModelOptions(const NetInput& input, int64_t local_batch,
                                    nets::ModelOptions options) {
  options.batch_size = local_batch;
  options.image_size = input.image_size;
  options.channels = input.channels;
  options.num_classes = input.num_classes;
  options.quantization = input.quantization;
  return options;
}

nets::ModelOptions MakeTrainingModelOptions(const NetInput& input, int64_t local_batch,
                                            nets::ModelOptions options) {
  options = MakeModelOptions(input, local_batch, options);
  options.training = true;
  options.normalize = input.normalize;
  options.soft_labels = !input.augmentations.batches.empty();
  return options;
}

int64_t DivideHostBatch(int64_t batch, const RankContext& context) {
  return std::max<int64_t>(1, batch / context.communicator().local_size());
}

int RunOnInput(const CommandLine& line, const DataConfig& dataset, const NetConfig& net,
               const MachineConfig& machine,
               const std::function<int(RankContext&, const NetInput&)>& body) {
  return RunAsRank(machine, [&](RankContext& context) {
    const NetInput input = ResolveNetInput(net, dataset);
    CheckFlagsMatch(line, context.communicator());
    line.LogIgnored();
    return body(context, input);
  });
}

}  // namespace carole::commands
