// carole dataset build.
#include <fmt/format.h>

#include <string>

#include "io/datasets/datasets.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/core/error.h"
#include "src/monitoring/progress/work_progress.h"

namespace carole::commands {
namespace {

std::string BuildableNames() {
  std::string names;
  for (const io::DatasetEntry& dataset : io::kDatasets) {
    if (dataset.build != nullptr)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", dataset.name);
  }
  return names;
}

struct BuildFlags {
  std::string name = "fashion_mnist";
  std::string raw_dir;
  std::string dataset_dir;
  std::string bounding_boxes;
  int seed = 0;
  int train_shards = 0;
  int validation_shards = 0;
  io::BuildOptions options;

  void AddTo(CommandLine& line) {
    line.Group("Data");
    line.Add("dataset_name", name, BuildableNames());
    line.Add("raw_dir", raw_dir, "folder of the raw files as they are distributed");
    line.Add("dataset_dir,data_dir", dataset_dir, "where the TFRecords go; made when missing")
        ->required();
    line.AddNonNegative("max_images", options.max_images, "of each split, for a first try; 0: all");
    line.AddNonNegative(
        "max_bad_records", options.max_bad_records,
        "of each split's pictures: so many may be left out, each with a word in the log; "
        "folder, flowers and imagenet only");
    const CLI::Range number(0, 99999);  // that names have digits for
    line.Add("train_shards", train_shards, "0: the data set's own number")->check(number);
    line.Add("validation_shards", validation_shards, "0: the data set's own number")->check(number);
    line.AddNonNegative("seed", seed,
                        "of shuffling and drawing; ImageNet's own is 12345, others' 0");
    line.AddNonNegative("num_threads", options.threads, "0: one for each core");
    line.Group("imagenet");
    line.Add("bounding_boxes", bounding_boxes,
             "tar of XML, or CSV; looked for in raw_dir when not given");
    line.Group("folder");
    line.Add("validation_fraction", options.validation_fraction, "of each class")
        ->check(CLI::Range(0.0, 1.0));
    line.Group("synthetic");
    line.Add("num_images", options.num_images, "to train; a tenth more for validation");
    line.Add("num_classes", options.num_classes, "drawn classes, labels from 1");
    line.Add("image_width", options.image_width, "three quarters of it are the height");
  }

  io::BuildOptions ToOptions(const CommandLine& line) {
    options.dataset = &io::FindDataset(name);
    if (raw_dir.empty() && name != "synthetic")
      throw UsageError("[flags] --raw_dir: missing: name the folder of the raw files");
    std::error_code error;
    if (!raw_dir.empty() && !std::filesystem::exists(raw_dir, error) && !error)
      throw DataError(fmt::format("[flags] --raw_dir {}: is not there; correct the path", raw_dir));
    options.raw_dir = raw_dir;
    options.output_dir = dataset_dir;
    options.bounding_boxes = bounding_boxes;
    if (line.Given("seed")) options.seed = static_cast<uint32_t>(seed);
    if (train_shards > 0) options.train_shards = train_shards;
    if (validation_shards > 0) options.validation_shards = validation_shards;
    return options;
  }
};

}  // namespace

int DatasetBuild(const Arguments& arguments) {
  BuildFlags flags;
  CommandLine line("carole dataset build",
                   "Writes TFRecords and labels.txt from a data set's raw files. A build that was "
                   "stopped goes on with the shards that are missing.");
  flags.AddTo(line);
  if (!line.Parse(arguments)) return 0;
  io::BuildOptions options = flags.ToOptions(line);
  if (options.dataset->build == nullptr)
    throw UsageError(
        fmt::format("[flags] --dataset_name: {} cannot be built from raw files", flags.name));
  monitoring::WorkProgress progress("images");
  options.progress = [&](std::string_view split, int64_t done, int64_t total) {
    progress.Show(split, done, total);
  };
  options.dataset->build(options);
  return 0;
}

}  // namespace carole::commands
