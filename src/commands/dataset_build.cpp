// carole dataset build: writes TFRecords from the raw files of a data set.
#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/datasets/datasets.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/flags/shard_flags.h"
#include "src/core/error.h"
#include "src/core/text/quote_for_shell.h"
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

// Returns the command that trains a net which suits the data set.
std::string TrainingCommand(const io::DatasetEntry& dataset, std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string data =
      fmt::format("--dataset_name={} --dataset_dir={} --train_dir={}", dataset.name,
                  QuoteForShell(folder), QuoteForShell(folder + "-run"));
  const std::string start = "carole train --ranks=2";
  if (dataset.name == "folder" || dataset.name == "flowers")
    return fmt::format("{} --recipe=own_images {}", start, data);
  const std::string_view net = dataset.channels == 1       ? "lenet"
                               : dataset.name == "cifar10" ? "cifarnet"
                                                           : "resnet_v1_50";
  return fmt::format("{} {} --model_name={}", start, data, net);
}

// Prints how many images of each class the splits have, and what to do next.
void PrintSummary(const io::BuildOptions& options, const std::vector<io::BuiltSplit>& splits) {
  constexpr size_t kMaxRows = 20;
  const std::vector<std::string> names = io::ClassNames(*options.dataset, options.output_dir);
  std::set<int64_t> labels;
  if (options.dataset->name == "folder") {  // each name is a class, also one without images
    for (size_t i = 0; i < names.size(); ++i) labels.insert(static_cast<int64_t>(i));
  }
  for (const io::BuiltSplit& split : splits) {
    for (const auto& [label, count] : split.class_counts) labels.insert(label);
  }
  const auto print_row = [&](std::string_view label, std::string_view name, auto&& cell_of) {
    fmt::print("  {:>5}", label);
    for (const io::BuiltSplit& split : splits) fmt::print("  {:>10}", cell_of(split));
    fmt::print("  {}\n", name);
  };
  fmt::print("{}: {} classes\n", options.output_dir.string(), labels.size());
  print_row("label", "class", [](const io::BuiltSplit& split) { return split.name; });
  size_t rows = 0;
  for (const int64_t label : labels) {
    if (rows++ == kMaxRows) break;
    print_row(std::to_string(label), LabelName(names, label), [&](const io::BuiltSplit& split) {
      const auto found = split.class_counts.find(label);
      return found == split.class_counts.end() ? 0 : found->second;
    });
  }
  if (labels.size() > kMaxRows) fmt::print("  and {} more classes\n", labels.size() - kMaxRows);
  print_row("all", "images", [](const io::BuiltSplit& split) {
    int64_t sum = 0;
    for (const auto& [label, count] : split.class_counts) sum += count;
    return sum;
  });
  fmt::print("Next: {}\n", TrainingCommand(*options.dataset, options.output_dir.string()));
}

struct BuildFlags {
  std::string name;
  std::string raw_dir;
  std::string dataset_dir;
  std::string bounding_boxes;
  int seed = 0;
  int train_shards = 0;
  int validation_shards = 0;
  io::BuildOptions options;

  void AddTo(CommandLine& line) {
    constexpr HelpLevel kBasic = HelpLevel::kBasic;
    line.Group("Data");
    line.Add("dataset_name", name,
             "Data set to build; folder: photos of your own. " + OneOf(BuildableNames()), kBasic);
    line.MarkRequired("dataset_name");
    line.AddPath("raw_dir", raw_dir,
                 "Folder of the raw files as they are distributed; for folder: RAW/CLASS/*.jpg, or "
                 "RAW/train/CLASS/*.jpg and RAW/val/CLASS/*.jpg. Required unless --dataset_name is "
                 "synthetic.",
                 kBasic);
    line.AddPath("dataset_dir,data_dir", dataset_dir,
                 "Folder in which the TFRecords are written; it is made if it is missing.", kBasic)
        .Required();
    line.AddNonNegative("max_images", options.max_images,
                        "Images that are taken from each split; 0: all.", kBasic);
    line.AddNonNegative("max_bad_records", options.max_bad_records,
                        "Bad images per split that may be left out, each with a line in the log; "
                        "for folder, flowers and imagenet.",
                        kBasic);
    constexpr int kMaxShards = 99999;  // file names have five digits for the number
    line.Add("train_shards", train_shards,
             "Number of shards of the training split; 0: the data set's usual number.", kBasic)
        .Between(0, kMaxShards);
    line.Add("validation_shards", validation_shards,
             "Number of shards of the other split; 0: the data set's usual number.", kBasic)
        .Between(0, kMaxShards);
    line.AddNonNegative(
        "seed", seed,
        "Seed of shuffling and drawing; if it is not given, imagenet uses 12345, others 0.",
        kBasic);
    line.AddNonNegative("num_threads", options.threads, "Threads; 0: one per core.", kBasic);
    line.Add("apply_exif_orientation", options.apply_exif_orientation,
             "Turn photos upright as their EXIF data say; they are encoded again (JPEG, quality "
             "100). TensorFlow and training ignore the EXIF data. For folder and flowers.",
             kBasic);
    line.Group("Data set imagenet");
    line.AddPath("bounding_boxes", bounding_boxes,
                 "Bounding boxes as a tar file of XML or as CSV; empty: looked for in --raw_dir.",
                 kBasic);
    line.Group("Data set folder");
    line.Add("validation_fraction", options.validation_fraction,
             "Fraction of each class that becomes the validation split, unless --raw_dir has the "
             "folders train and val.",
             kBasic)
        .Between(0.0, 1.0);
    line.Group("Data set synthetic");
    line.Add("num_images", options.num_images,
             "Number of training images; a tenth as many are drawn for validation.", kBasic);
    line.Add("num_classes", options.num_classes, "Number of classes; labels begin at 1.", kBasic);
    line.Add("image_width", options.image_width,
             "Width of images in pixels; the height is three quarters of it.", kBasic);
  }

  io::BuildOptions ToOptions(const CommandLine& line) {
    if (name.empty())
      throw UsageError(fmt::format(
          "[flags] --dataset_name: missing: want one of {}; for photos of your own pass "
          "--dataset_name=folder",
          BuildableNames()));
    options.dataset = &io::FindDataset(name);
    if (dataset_dir.empty())
      throw UsageError("[flags] --dataset_dir: empty; name the folder of the TFRecords");
    if (raw_dir.empty() && name != "synthetic")
      throw UsageError("[flags] --raw_dir: missing; name the folder of the raw files");
    std::error_code error;
    if (!raw_dir.empty() && !std::filesystem::exists(raw_dir, error) && !error)
      throw DataError(
          fmt::format("[flags] --raw_dir={}: does not exist; correct the path", raw_dir));
    if (options.apply_exif_orientation && name != "folder" && name != "flowers")
      throw UsageError(
          fmt::format("[flags] --apply_exif_orientation: not for this data set: got {}, want "
                      "--dataset_name=folder or flowers",
                      name));
    options.raw_dir = raw_dir;
    options.output_dir = dataset_dir;
    options.bounding_boxes = bounding_boxes;
    if (line.IsGiven("seed")) options.seed = static_cast<uint32_t>(seed);
    if (train_shards > 0) options.train_shards = train_shards;
    if (validation_shards > 0) options.validation_shards = validation_shards;
    return options;
  }
};

}  // namespace

int DatasetBuild(const Arguments& arguments) {
  BuildFlags flags;
  CommandLine line("carole dataset build",
                   "Writes TFRecords and labels.txt from the raw files of a data set, and prints "
                   "the classes and the next command. A build that was stopped continues with the "
                   "missing shards. For --dataset_name=folder, --raw_dir has one folder of JPEGs "
                   "and PNGs per class, whose name is that of the class. Deeper folders belong to "
                   "their class.",
                   {"carole dataset build --dataset_name=fashion_mnist --raw_dir=RAW "
                    "--dataset_dir=DATA",
                    "carole dataset build --dataset_name=folder --raw_dir=PHOTOS "
                    "--dataset_dir=DATA"});
  flags.AddTo(line);
  if (!line.Parse(arguments)) return 0;
  io::BuildOptions options = flags.ToOptions(line);
  if (options.dataset->build == nullptr)
    throw UsageError(
        fmt::format("[flags] --dataset_name: cannot be built from raw files: got {}, want one of "
                    "{}",
                    flags.name, BuildableNames()));
  monitoring::WorkProgress progress("images");
  options.progress = [&](std::string_view split, int64_t done, int64_t total) {
    progress.Show(split, done, total);
  };
  PrintSummary(options, options.dataset->build(options));
  return 0;
}

}  // namespace carole::commands
