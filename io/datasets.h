// Every dataset this program knows: names of its files, splits, classes, and how raw data becomes
// TFRecords. Add a declaration and a row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

struct DatasetEntry;

struct BuildOptions {
  const DatasetEntry* dataset = nullptr;
  std::filesystem::path raw_dir;     // the files as they are distributed
  std::filesystem::path output_dir;  // made when it is not there
  int64_t max_images = 0;            // of each split, for a first try; 0: all
  // Called now and then from the same thread; total is known from the start.
  std::function<void(std::string_view split, int64_t done, int64_t total)> progress;
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
  int num_classes = 0;
  int channels = 3;        // that images are decoded to
  int label_of_first = 0;  // smallest label in the records of a full data set
  std::span<const std::string_view> class_names;  // empty: see labels.txt beside the data
  void (*build)(const BuildOptions& options) =
      nullptr;  // optional: raw data -> TFRecords and labels.txt
};

// Raw IDX files, plain or gzip, to one TFRecord a split: PNG 28x28x1, TF-Slim's keys. The files
// appear when they are complete. Throws DataError for raw files that do not fit.
void BuildMnist(const BuildOptions& options);
// CIFAR-10's binary batches (raw_dir or raw_dir/cifar-10-batches-bin): PNG 32x32x3.
void BuildCifar10(const BuildOptions& options);

inline constexpr SplitEntry kImagenetSplits[] = {{"train", 1281167, "train-*"},
                                                 {"validation", 50000, "validation-*"}};
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
    // Records count classes from 1; class 0 is "background". Names: labels.txt.
    {.name = "imagenet", .splits = kImagenetSplits, .num_classes = 1001, .label_of_first = 1},
    {.name = "flowers", .splits = kFlowersSplits, .num_classes = 5, .class_names = kFlowersNames},
    {.name = "cifar10",
     .splits = kCifar10Splits,
     .num_classes = 10,
     .class_names = kCifar10Names,
     .build = BuildCifar10},
    {.name = "mnist",
     .splits = kMnistSplits,
     .num_classes = 10,
     .channels = 1,
     .class_names = kMnistNames,
     .build = BuildMnist},
    {.name = "fashion_mnist",
     .splits = kFashionMnistSplits,
     .num_classes = 10,
     .channels = 1,
     .class_names = kFashionMnistNames,
     .build = BuildMnist},
};

// The row of a name. Throws UsageError that lists the names.
const DatasetEntry& FindDataset(std::string_view name);

// Throws UsageError that lists the splits.
const SplitEntry& FindSplit(const DatasetEntry& dataset, std::string_view split);

// The shards of a split, sorted by name. Throws DataError when the folder is missing or holds no
// match, and when shards of a `-of-N` set are missing (named).
std::vector<std::filesystem::path> FindShards(const DatasetEntry& dataset, std::string_view split,
                                              const std::filesystem::path& dataset_dir);

// The names of classes 0..num_classes-1: those of labels.txt in dataset_dir, else of the table; a
// class that neither names is called by its number. Throws DataError for a line of labels.txt that
// is not INDEX:NAME.
std::vector<std::string> ClassNames(const DatasetEntry& dataset,
                                    const std::filesystem::path& dataset_dir);

}  // namespace carole::io
