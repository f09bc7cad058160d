// Every dataset this program knows: names of its files, splits, classes, and how raw data becomes
// TFRecords. Add a file datasets/NAME.cpp, a declaration and a row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/records/raw_pixels.h"

namespace carole::io {

struct DatasetEntry;

struct BuildOptions {
  const DatasetEntry* dataset = nullptr;
  std::filesystem::path raw_dir;     // the files as they are distributed
  std::filesystem::path output_dir;  // made when it is not there
  int64_t max_images = 0;            // of each split, for a first try; 0: all
  int64_t max_bad_records = 0;       // of photos and imagenet: pictures that may be left out
  int threads = 0;                   // 0: one for each core
  // Of shuffling and drawing; none: the data set's own (ImageNet 12345, others 0).
  std::optional<uint32_t> seed = std::nullopt;
  // Shards of each split where a split has several; none: the data set's own number.
  std::optional<int> train_shards = std::nullopt;
  std::optional<int> validation_shards = std::nullopt;
  std::filesystem::path bounding_boxes;  // imagenet; empty: looked for in raw_dir
  double validation_fraction = 0.1;      // folder: of each class
  int64_t num_images = 1000;             // synthetic: to train; a tenth more for validation
  int num_classes = 10;                  // synthetic
  int image_width = 500;                 // synthetic; three quarters of it are the height
  // Called now and then from the same thread; total is known from the start.
  std::function<void(std::string_view split, int64_t done, int64_t total)> progress = {};

  void Report(std::string_view split, int64_t done, int64_t total) const {
    if (progress) progress(split, done, total);
  }
};

struct SplitEntry {
  std::string_view name;
  int64_t num_samples = 0;  // of the full data set
  // Of its shards, as fnmatch(3) reads it. Build() writes the file of this very name.
  std::string_view pattern;
};

struct DatasetEntry {
  std::string_view name;
  std::span<const SplitEntry> splits;
  int num_classes = 0;        // 0: labels.txt beside the data tells (NumClasses)
  int channels = 3;           // that images are decoded to
  RawPixelFormat raw_pixels;  // for records that hold pixels without an image format
  int label_of_first = 0;     // smallest label in the records of a full data set
  std::span<const std::string_view> class_names;  // empty: see ClassNames()
  void (*build)(const BuildOptions& options) =
      nullptr;  // optional: raw data -> TFRecords and labels.txt
};

// `dataset` may be null.
inline RawPixelFormat RawPixelsOf(const DatasetEntry* dataset) {
  return dataset != nullptr ? dataset->raw_pixels : RawPixelFormat();
}

// Raw IDX files, plain or gzip, or NAME.npz as Keras has it (raw_dir may be that file itself), to
// one TFRecord a split: PNG 28x28x1, TF-Slim's keys. The files appear when they are complete.
// Throws DataError for raw files that do not fit.
void BuildMnist(const BuildOptions& options);
// The files there that BuildMnist() reads; none where the training images are missing.
std::vector<std::filesystem::path> FindRawMnist(const DatasetEntry& dataset,
                                                const std::filesystem::path& raw_dir);
// ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and boxes to 1024 + 128 shards in TF-Slim's
// form, order and numbering, read in place. Goes on where an earlier call was stopped. Either
// archive may be missing. Throws DataError that names archive, picture and byte.
void BuildImagenet(const BuildOptions& options);
// raw_dir/flower_photos/CLASS/*.jpg: TF-Slim's split and 5 + 5 shards.
void BuildFlowers(const BuildOptions& options);
// raw_dir/CLASS/*.{jpg,jpeg,png}: labels from 0 by name, the same fraction of each class for
// validation.
void BuildFolder(const BuildOptions& options);
// Drawn JPEGs in ImageNet's form, labels 1 to num_classes; raw_dir is not used.
void BuildSynthetic(const BuildOptions& options);
// CIFAR-10's binary batches (raw_dir or raw_dir/cifar-10-batches-bin): PNG 32x32x3.
void BuildCifar10(const BuildOptions& options);

inline constexpr SplitEntry kImagenetSplits[] = {{"train", 1281167, "train-*"},
                                                 {"validation", 50000, "validation-*"}};
// Of any number.
inline constexpr SplitEntry kFolderSplits[] = {{"train", 0, "train-*"},
                                               {"validation", 0, "validation-*"}};
inline constexpr SplitEntry kFlowersSplits[] = {
    {"train", 3320, "flowers_train_*.tfrecord"},
    {"validation", 350, "flowers_validation_*.tfrecord"}};
inline constexpr SplitEntry kCifar10Splits[] = {{"train", 50000, "cifar10_train.tfrecord"},
                                                {"test", 10000, "cifar10_test.tfrecord"}};
inline constexpr SplitEntry kMnistSplits[] = {{"train", 60000, "mnist_train.tfrecord"},
                                              {"test", 10000, "mnist_test.tfrecord"}};
inline constexpr SplitEntry kFashionMnistSplits[] = {
    {"train", 60000, "fashion_mnist_train.tfrecord"},
    {"test", 10000, "fashion_mnist_test.tfrecord"}};
inline constexpr SplitEntry kVisualWakeWordsSplits[] = {{"train", 82783, "train.record-*"},
                                                        {"val", 40504, "val.record-*"}};

inline constexpr std::string_view kFlowersNames[] = {"daisy", "dandelion", "roses", "sunflowers",
                                                     "tulips"};
inline constexpr std::string_view kCifar10Names[] = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
// TF-Slim's own list says "size" for six.
inline constexpr std::string_view kMnistNames[] = {"zero", "one", "two",   "three", "four",
                                                   "five", "six", "seven", "eight", "nine"};
inline constexpr std::string_view kFashionMnistNames[] = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

inline constexpr DatasetEntry kDatasets[] = {
    // Records count classes from 1; class 0 is "background". Names: of the synsets.
    {.name = "imagenet",
     .splits = kImagenetSplits,
     .num_classes = 1001,
     .label_of_first = 1,
     .build = BuildImagenet},
    {.name = "flowers",
     .splits = kFlowersSplits,
     .num_classes = 5,
     .class_names = kFlowersNames,
     .build = BuildFlowers},
    {.name = "cifar10",
     .splits = kCifar10Splits,
     .num_classes = 10,
     .raw_pixels = {.image_size = 32},
     .class_names = kCifar10Names,
     .build = BuildCifar10},
    {.name = "mnist",
     .splits = kMnistSplits,
     .num_classes = 10,
     .channels = 1,
     .raw_pixels = {.image_size = 28, .without_format = true},
     .class_names = kMnistNames,
     .build = BuildMnist},
    {.name = "fashion_mnist",
     .splits = kFashionMnistSplits,
     .num_classes = 10,
     .channels = 1,
     .raw_pixels = {.image_size = 28, .without_format = true},
     .class_names = kFashionMnistNames,
     .build = BuildMnist},
    // Of COCO, by TF-Slim's build_visualwakewords_data.py: whether there is a person.
    {.name = "visualwakewords", .splits = kVisualWakeWordsSplits, .num_classes = 2},
    {.name = "folder", .splits = kFolderSplits, .build = BuildFolder},
    {.name = "synthetic", .splits = kFolderSplits, .label_of_first = 1, .build = BuildSynthetic},
};

// The row of a name. Throws UsageError that lists the names.
const DatasetEntry& FindDataset(std::string_view name);

// Throws UsageError that lists the splits.
const SplitEntry& FindSplit(const DatasetEntry& dataset, std::string_view split);

// The shards of a split, sorted by name. dataset_dir is a folder, or a comma-separated list of
// folders, shards and globs of them, of which files named like the split's are taken. Throws
// DataError when a folder is missing or nothing matches, and when shards of a `-of-N` set are
// missing or there twice (named).
std::vector<std::filesystem::path> FindShards(const DatasetEntry& dataset, std::string_view split,
                                              const std::filesystem::path& dataset_dir);

// The number of classes: the table's, else one more than the highest number in labels.txt of
// dataset_dir. Throws DataError when that file is missing or malformed.
int NumClasses(const DatasetEntry& dataset, const std::filesystem::path& dataset_dir);

// The names of classes 0..num_classes-1: those of labels.txt in dataset_dir, else of the table, for
// ImageNet of its synsets; a class that has none is called by its number. Throws DataError for a
// line of labels.txt that is not INDEX:NAME.
std::vector<std::string> ClassNames(const DatasetEntry& dataset,
                                    const std::filesystem::path& dataset_dir);

}  // namespace carole::io
