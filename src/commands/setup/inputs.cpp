#include "src/commands/setup/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "collectives/ranks/fact_check.h"
#include "collectives/ranks/rank_local_work.h"
#include "io/preprocessing/preprocessing.h"
#include "io/records/record_index.h"
#include "src/backend/arena_math.h"
#include "src/backend/nvjpeg/nvjpeg.h"
#include "src/commands/flags/flag_check.h"
#include "src/core/error.h"
#include "src/core/hash.h"

namespace carole::commands {

namespace {

namespace fs = std::filesystem;

// The GPU that the rank computes on, or would.
int GpuOf(const Job& job) {
  const ArenaMath* math = job.backend().arena_math();
  return math != nullptr ? math->device() : job.communicator().local_rank();
}

// None where images come as fp32.
std::optional<NormalizeAttributes> ChooseNormalize(const DatasetFlags& dataset,
                                                   const io::PreprocessingEntry& preprocessing) {
  const bool whole_pixels = preprocessing.has_whole_pixels && !dataset.use_grayscale;
  const bool wanted =
      dataset.input_dtype == "auto" ? whole_pixels : dataset.input_dtype == Name(DType::kU8);
  if (!wanted) return std::nullopt;
  const io::Normalization& n = io::NormalizationOf(preprocessing);
  return NormalizeAttributes{.subtract = n.subtract, .multiply = n.multiply};
}

}  // namespace

std::string PreprocessingOf(const nets::NetEntry& net, const std::string& flag) {
  if (flag.empty()) return std::string(net.preprocessing);
  const nets::NetEntry* const named = nets::TryFindNet(flag);
  return named != nullptr ? std::string(named->preprocessing) : flag;
}

NetInput ResolveNetInput(const NetFlags& net, const DatasetFlags& dataset) {
  NetInput input;
  input.net = &nets::FindNet(net.model_name);
  input.dataset = &io::FindDataset(dataset.dataset_name);
  if (dataset.dataset_dir.empty())
    throw UsageError("[flags] --dataset_dir: missing: name the folder of the TFRecords");
  input.preprocessing = PreprocessingOf(*input.net, dataset.preprocessing_name);
  input.image_size = net.image_size > 0 ? net.image_size : static_cast<int>(input.net->image_size);
  const io::PreprocessingEntry& preprocessing = io::FindPreprocessing(input.preprocessing);
  io::CheckPreprocessingSize(preprocessing, input.image_size, input.image_size);
  input.normalize = ChooseNormalize(dataset, preprocessing);
  input.channels = dataset.use_grayscale ? 1 : input.dataset->channels;
  input.num_classes = io::NumClasses(*input.dataset, dataset.dataset_dir) - dataset.labels_offset;
  if (input.num_classes < 2) {
    if (dataset.labels_offset == 0)
      throw DataError(
          fmt::format("[data] --dataset_dir {}: labels.txt: got {} class, want 2 or "
                      "more lines INDEX:NAME",
                      dataset.dataset_dir, input.num_classes));
    throw UsageError(fmt::format("[flags] --labels_offset: too few classes: got {}, want 2 or more",
                                 input.num_classes));
  }
  return input;
}

void AddInputFlags(CommandLine& line, DatasetFlags& flags) {
  line.Group("Training data");
  line.AddBool("fast_mode", flags.fast_mode,
               "inception: bilinear resizing, brightness and saturation only; --nofast_mode adds "
               "three ways of resizing, hue and contrast");
  line.AddBool(
      "use_bounding_boxes", flags.use_bounding_boxes,
      "inception: each crop shows some of an object that the records mark; TF-Slim's trainer "
      "does not look at them");
  line.Add(
          "input_dtype", flags.input_dtype,
          "what the net gets: fp32; uint8, which takes a quarter of the bytes to a GPU, where they "
          "are normalized, but rounds what was resized or distorted to whole pixels; auto: uint8 "
          "where that changes nothing")
      ->check(CLI::IsMember({"auto", "fp32", "uint8"}));
  line.Add("shuffle_block_records", flags.shuffle_block_records,
           "for disks that are slow at seeking: shuffles runs of so many records, then records "
           "within 16 runs; 0: all records freely")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32));
}

int DecodeThreads(const DatasetFlags& flags, const Job& job) {
  // Decoding waits for memory and branches, which a core's second thread makes use of; vectors that
  // compute leave it nothing.
  const int room = job.backend().on_host() ? job.cores() : job.hyperthreads();
  if (flags.num_preprocessing_threads > 0) return std::min(flags.num_preprocessing_threads, room);
  const int free = room - job.backend().threads();  // a GPU's takes one: it launches
  return free > 0 ? free : room;
}

io::PipelineOptions MakePipelineOptions(const DatasetFlags& flags, const NetInput& input,
                                        const Job& job, int64_t local_batch) {
  io::PipelineOptions options;
  options.dataset = input.dataset;
  options.dataset_dir = flags.dataset_dir;
  options.work_dir = flags.work_dir;
  options.split = flags.dataset_split_name;
  options.preprocessing = &io::FindPreprocessing(input.preprocessing);
  options.height = options.width = input.image_size;
  options.channels = input.channels;
  options.labels_offset = flags.labels_offset;
  options.num_classes = input.num_classes;
  options.local_batch = local_batch;
  options.rank = job.rank();
  options.size = job.size();
  options.dct_method = ParseDctMethod(flags.dct_method);
  if (flags.jpeg_decoder == "nvjpeg")
    options.decoder_factory = std::make_shared<gpu_jpeg::NvJpeg>(GpuOf(job));
  options.dct_scaling = flags.dct_scaling;
  options.fast_mode = flags.fast_mode;
  options.use_bounding_boxes = flags.use_bounding_boxes;
  options.shuffle_block_records = flags.shuffle_block_records;
  options.max_bad_records = flags.max_bad_records;
  options.threads = DecodeThreads(flags, job);
  return options;
}

int64_t CountSamples(const DatasetFlags& flags, const NetInput& input, const Job& job) {
  const std::string& split = flags.dataset_split_name;
  io::RecordIndex index;
  collectives::RunRankLocal(job.communicator(), "records", [&] {
    index = io::LoadRecordIndex({.shards = io::FindShards(*input.dataset, split, flags.dataset_dir),
                                 .work_dir = flags.work_dir,
                                 .threads = DecodeThreads(flags, job),
                                 .skip_damage = flags.max_bad_records > 0});
  });
  std::string shards;
  for (const io::ShardIndex& shard : index.shards()) {
    shards += fmt::format("{} {} {}\n", fs::path(shard.path).filename().string(), shard.file_bytes,
                          shard.num_records());
  }
  collectives::CheckSettingsMatch(
      job.communicator(),
      {{"records of " + split, std::to_string(index.num_records())},
       {"names and sizes of its shards", fmt::format("hash {:016x}", Fnv1a64(shards))}});
  return index.num_records();
}

nets::ModelOptions MakeModelOptions(const NetInput& input, int64_t local_batch) {
  return {.batch_size = local_batch,
          .image_size = input.image_size,
          .channels = input.channels,
          .num_classes = input.num_classes};
}

int64_t ShareOfMachine(int64_t batch, const Job& job) {
  return std::max<int64_t>(1, batch / job.communicator().local_size());
}

int RunOnInput(const CommandLine& line, const DatasetFlags& dataset, const NetFlags& net,
               const MachineFlags& machine, const std::function<int(Job&, const NetInput&)>& body) {
  const NetInput input = ResolveNetInput(net, dataset);
  return RunJob(machine, [&](Job& job) {
    CheckFlagsMatch(line, job.communicator());
    line.LogIgnored();
    return body(job, input);
  });
}

}  // namespace carole::commands
