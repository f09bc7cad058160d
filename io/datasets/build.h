// What the builders of datasets share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/datasets/datasets.h"

namespace carole::io {

// Small images of one size, in memory as they are distributed.
struct RawImages {
  std::string_view split;
  int height = 0;
  int width = 0;
  int channels = 1;
  std::string_view pixels;  // (count, height, width, channels), bytes
  std::string_view labels;  // (count), a byte each
};

// Writes the first max_images of each split to its one TFRecord file, as PNGs in TF-Slim's form. A
// file that is there already is left alone when it was made of the same; else nothing is written:
// throws UsageError.
void WriteImages(const BuildOptions& options, const std::vector<RawImages>& splits);

// Throws DataError, naming `source` and the image's number, for one that is none of the dataset's
// classes.
void CheckLabels(const DatasetEntry& dataset, std::string_view labels, const std::string& source);

// Writes labels.txt: INDEX:NAME lines. Without names: those of the table.
void WriteLabels(const BuildOptions& options, std::span<const std::string> names);
void WriteLabels(const BuildOptions& options);

// max_images, or all `count` when it is 0.
int64_t NumToBuild(const BuildOptions& options, int64_t count);

// How many shards `count` images are written to, unless flags say.
int DefaultShards(int64_t count);

// When a raw file was written last: one that was mended in place is another, whatever its size.
int64_t WrittenAt(const std::filesystem::path& file);

}  // namespace carole::io
