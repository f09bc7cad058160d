// The table of data sets that this program knows: their splits, file names and classes, and how raw
// data becomes TFRecords. To add a data set, add a file NAME.cpp with its build function, a
// declaration here and a row in kDatasets (see README.md in this folder).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/records/raw_pixels.h"

namespace carole::io {

struct DatasetEntry;

// Options of `carole dataset build`.
struct BuildOptions {
  const DatasetEntry* dataset = nullptr;
  std::filesystem::path raw_dir;     // the files as they are distributed
  std::filesystem::path output_dir;  // is created if it does not exist
  int64_t max_images = 0;            // builds only the first images of each split; 0: all
  int64_t max_bad_records = 0;       // photos and imagenet: images per split that may be left out
  int threads = 0;                   // 0: one per core
  // Seed of shuffling and drawing; nullopt: the data set's default (ImageNet 12345, others 0).
  std::optional<uint32_t> seed = std::nullopt;
  // Number of shards, for splits of several files; nullopt: the data set's default.
  std::optional<int> train_shards = std::nullopt;
  std::optional<int> validation_shards = std::nullopt;
  std::filesystem::path bounding_boxes;  // imagenet; empty: is searched in raw_dir
  double validation_fraction = 0.1;      // folder: this fraction of each class
  // folder and flowers: turns images upright as their EXIF data say.
  bool apply_exif_orientation = false;
  int64_t num_images = 1000;  // synthetic: training images; plus 10 % for validation
  int num_classes = 10;       // synthetic
  int image_width = 500;      // synthetic; the height is 3/4 of it
  // Called from time to time on the calling thread; `total` is known from the start.
  std::function<void(std::string_view split, int64_t done, int64_t total)> progress = {};

  void Report(std::string_view split, int64_t done, int64_t total) const {
    if (progress) progress(split, done, total);
  }
};

// The result of a build for one split.
struct BuiltSplit {
  std::string name;
  std::map<int64_t, int64_t> class_counts;  // label -> number of images
};

// A split of a data set.
struct SplitEntry {
  std::string_view name;
  int64_t num_samples = 0;  // in the full data set
  // Pattern of the shards' file names, for fnmatch(3). If the split is a single file, it is the
  // name of that file.
  std::string_view pattern;
};

// A row of kDatasets.
struct DatasetEntry {
  std::string_view name;
  std::span<const SplitEntry> splits;
  int num_classes = 0;        // 0: given by labels.txt next to the data (NumClasses())
  int channels = 3;           // images are decoded to this many channels
  RawPixelFormat raw_pixels;  // for records that hold raw pixels
  int first_label = 0;        // smallest label in the records of a full data set
  std::span<const std::string_view> class_names;  // empty: see ClassNames()
  // Builds TFRecords and labels.txt from raw data (optional).
  std::vector<BuiltSplit> (*build)(const BuildOptions& options) = nullptr;
};

// Returns how a data set stores raw pixels. `dataset` may be null.
inline RawPixelFormat RawPixelsOf(const DatasetEntry* dataset) {
  return dataset != nullptr ? dataset->raw_pixels : RawPixelFormat();
}

// The build functions. They write complete shards only, continue an interrupted build, and return
// the splits with the number of images in each class. They throw UsageError if the folder holds
// shards of another build, and DataError if raw files are missing or damaged.

// Builds MNIST or Fashion-MNIST from IDX files, plain or gzip, or from Keras's NAME.npz (raw_dir
// may be that file itself). Writes one TFRecord file per split: 28x28x1 PNGs with TF-Slim's
// features.
std::vector<BuiltSplit> BuildMnist(const BuildOptions& options);
// Returns the files in raw_dir that BuildMnist() would read; empty if the training images are
// missing.
std::vector<std::filesystem::path> FindRawMnist(const DatasetEntry& dataset,
                                                const std::filesystem::path& raw_dir);
// Builds ImageNet from ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and bounding boxes, in 1024
// + 128 shards with TF-Slim's features, order and numbering. The archives are read in place.
// Folders of their images (train/SYNSET and val, or val/SYNSET) give the same records. One split
// may be missing. Errors name archive, image and byte offset.
std::vector<BuiltSplit> BuildImagenet(const BuildOptions& options);
// Builds TF-Slim's flowers from raw_dir/flower_photos/CLASS/*.jpg, with TF-Slim's split and 5 + 5
// shards.
std::vector<BuiltSplit> BuildFlowers(const BuildOptions& options);
// Builds a data set of the user's photos from raw_dir/CLASS, also of those in deeper folders.
// Labels count from 0 in the order of the names. The same fraction of each class is used for
// validation, unless there are raw_dir/train/CLASS and raw_dir/val/CLASS (class_folders.h).
std::vector<BuiltSplit> BuildFolder(const BuildOptions& options);
// Builds generated JPEGs with ImageNet's features and labels 1 to num_classes. raw_dir is not used.
std::vector<BuiltSplit> BuildSynthetic(const BuildOptions& options);
// Builds CIFAR-10 from its binary batch files in raw_dir or raw_dir/cifar-10-batches-bin, as
// 32x32x3 PNGs.
std::vector<BuiltSplit> BuildCifar10(const BuildOptions& options);

// Builds TF-Slim's Visual Wake Words from COCO: raw_dir/annotations/instances_train2014.json with
// raw_dir/train2014/*.jpg, and the same for val2014 (or 2017). One split may be missing. Writes
// 100 + 10 shards.
std::vector<BuiltSplit> BuildVisualWakeWords(const BuildOptions& options);

inline constexpr SplitEntry kImagenetSplits[] = {{"train", 1281167, "train-*"},
                                                 {"validation", 50000, "validation-*"}};
// These splits may have any number of images.
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
inline constexpr std::string_view kVisualWakeWordsNames[] = {"background", "person"};
inline constexpr std::string_view kCifar10Names[] = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
// TF-Slim's list has the misspelling "size" for six.
inline constexpr std::string_view kMnistNames[] = {"zero", "one", "two",   "three", "four",
                                                   "five", "six", "seven", "eight", "nine"};
inline constexpr std::string_view kFashionMnistNames[] = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

inline constexpr DatasetEntry kDatasets[] = {
    // Labels count from 1; class 0 is "background". The class names are those of the synsets.
    {.name = "imagenet",
     .splits = kImagenetSplits,
     .num_classes = 1001,
     .first_label = 1,
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
    // The label says whether there is a person in the image.
    {.name = "visualwakewords",
     .splits = kVisualWakeWordsSplits,
     .num_classes = 2,
     .class_names = kVisualWakeWordsNames,
     .build = BuildVisualWakeWords},
    {.name = "folder", .splits = kFolderSplits, .build = BuildFolder},
    {.name = "synthetic", .splits = kFolderSplits, .first_label = 1, .build = BuildSynthetic},
};

// Returns the row of this name. Throws UsageError with the list of names if there is none.
const DatasetEntry& FindDataset(std::string_view name);

// Returns the split of this name. Throws UsageError with the list of splits if there is none.
const SplitEntry& FindSplit(const DatasetEntry& dataset, std::string_view split);

// Whether a file of this name, in a folder of records, belongs to the split.
bool MatchesSplit(const SplitEntry& split, const std::string& name);

// Returns the shards of a split, sorted by name. dataset_dir is a folder, or a comma-separated list
// of folders, shards and glob patterns. A folder gives the files that match the split's pattern. A
// file in the list may have any name, unless the name states another split ("mydata_val.tfrecord").
// A glob pattern gives those of its files that have a name of records. Throws DataError if a folder
// is missing, if nothing is found, or if shards of a `-of-N` set are missing or occur twice.
std::vector<std::filesystem::path> FindShards(const DatasetEntry& dataset, std::string_view split,
                                              const std::filesystem::path& dataset_dir);

// Returns the number of classes: that of kDatasets, or else one more than the highest index in
// dataset_dir's labels.txt. Throws DataError if that file is needed and is missing or malformed.
int NumClasses(const DatasetEntry& dataset, const std::filesystem::path& dataset_dir);

// Returns one more than the highest index in dataset_dir's labels.txt; 0 if there is no such file.
// Throws DataError if it is malformed.
int NumLabels(const std::filesystem::path& dataset_dir);

// Returns the names of the classes 0 to num_classes - 1. A name comes from dataset_dir's
// labels.txt, or else from kDatasets (for ImageNet from the synsets), or else is the class's
// number. Throws DataError if a line of labels.txt is not INDEX:NAME.
std::vector<std::string> ClassNames(const DatasetEntry& dataset,
                                    const std::filesystem::path& dataset_dir);

}  // namespace carole::io
