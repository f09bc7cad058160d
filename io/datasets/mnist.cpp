// MNIST and data sets in its form (Fashion-MNIST): IDX files to TFRecords.
#include <fmt/format.h>

#include "io/datasets/build.h"
#include "io/idx.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

void BuildSplit(const BuildOptions& options, const SplitEntry& split, const std::string& stem) {
  std::unique_ptr<Source> images_file = OpenIdx(options.raw_dir, stem + "-images", 3);
  std::unique_ptr<Source> labels_file = OpenIdx(options.raw_dir, stem + "-labels", 1);
  const std::string images_name = images_file->name();
  const std::string labels_name = labels_file->name();
  const IdxImages images = ReadIdxImages(std::move(images_file));
  const std::string labels = ReadIdxLabels(std::move(labels_file));
  if (images.height != 28 || images.width != 28) {
    throw DataError(fmt::format("[io.build] {}: wrong size of images: got {}x{}, want 28x28",
                                images_name, images.height, images.width));
  }
  if (static_cast<int64_t>(labels.size()) != images.count) {
    throw DataError(fmt::format("[io.build] {}: wrong number of labels: got {}, want {} as in {}",
                                labels_name, labels.size(), images.count, images_name));
  }
  SplitWriter writer(options, split, NumToBuild(options, images.count));
  const auto* pixels = reinterpret_cast<const uint8_t*>(images.pixels.data());
  for (int64_t i = 0; !writer.full(); ++i, pixels += 28 * 28) {
    const ImageView image{.pixels = pixels, .height = 28, .width = 28, .channels = 1};
    writer.Add(image, static_cast<uint8_t>(labels[i]), labels_name);
  }
  writer.Commit();
}

}  // namespace

void BuildMnist(const BuildOptions& options) {
  BuildSplit(options, FindSplit(*options.dataset, "train"), "train");
  BuildSplit(options, FindSplit(*options.dataset, "test"), "t10k");
  WriteLabels(options);
}

}  // namespace carole::io
