// Functions that the builders of the data sets share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/datasets/datasets.h"
#include "io/datasets/image_example.h"

namespace carole::io {

// A split of small images of one size, in memory in the layout of the raw files.
struct RawImages {
  std::string_view split;
  int height = 0;
  int width = 0;
  int channels = 1;
  std::string_view pixels;  // (count, height, width, channels) bytes
  std::string_view labels;  // (count) bytes
};

// Writes the first max_images images of each split to the split's single TFRecord file, as PNGs
// with TF-Slim's features. An existing file of the same build is kept. Throws UsageError, and
// writes nothing, if there is a file of another build.
std::vector<BuiltSplit> WriteImages(const BuildOptions& options,
                                    const std::vector<RawImages>& splits);

// Throws DataError, with `source` and the image's number, if a label is not a class of the data
// set.
void CheckLabels(const DatasetEntry& dataset, std::string_view labels, const std::string& source);

// Writes labels.txt with lines INDEX:NAME. The second form takes the names from kDatasets.
void WriteLabels(const BuildOptions& options, std::span<const std::string> names);
void WriteLabels(const BuildOptions& options);

// Counts the examples 0 to count - 1 by label_of(i), without those that were left out (the sorted
// result of WriteShards()).
template <typename LabelOf>
BuiltSplit CountClasses(std::string_view split, int64_t count, const std::vector<int64_t>& left_out,
                        LabelOf&& label_of) {
  BuiltSplit built{.name = std::string(split)};
  for (int64_t i = 0; i < count; ++i) {
    if (!std::binary_search(left_out.begin(), left_out.end(), i)) ++built.class_counts[label_of(i)];
  }
  return built;
}

// Counts the images of a split whose EXIF data say that they are not upright. Thread-safe.
class OrientationCount {
 public:
  void Add(const CheckedImage& image) {
    if (image.orientation != 1) ++count_;
  }
  // Logs the number, if there are any. `remark`: what happens to them.
  void Log(std::string_view split, std::string_view remark) const;

 private:
  std::atomic<int64_t> count_{0};
};

// Returns how many of `count` images are built: at most max_images, or all if that is 0.
int64_t NumToBuild(const BuildOptions& options, int64_t count);

// Returns the default number of shards for `count` images.
int DefaultShards(int64_t count);

// Returns the modification time of a raw file. It is part of the build description, because a file
// that was repaired in place may keep its size.
int64_t ModificationTime(const std::filesystem::path& file);

}  // namespace carole::io
