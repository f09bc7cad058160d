// Builds a data set of generated JPEGs in ImageNet's form: labels from 1, bounding boxes, two
// splits of several shards.
#include <fmt/format.h>

#include <algorithm>

#include "io/datasets/build.h"
#include "io/datasets/drawing.h"
#include "io/datasets/image_example.h"
#include "io/image/jpeg_encode.h"
#include "io/records/shard_writer.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr int kMaxSide = 4096;

std::string SynsetId(int label) { return fmt::format("s{:08}", label); }

std::string MakeExample(const BuildOptions& options, const std::string& split, int64_t number) {
  constexpr int kQuality = 90;
  const auto label = static_cast<int>(number % options.num_classes);
  const Drawing drawing = Draw({.height = std::max(8, options.image_width * 3 / 4),
                                .width = options.image_width,
                                .label = label,
                                .seed = options.seed.value_or(0),
                                .stream = split == "train" ? 0u : 1u,
                                .number = static_cast<uint64_t>(number)});
  const CheckedImage image{.bytes = EncodeJpeg(drawing.image.view(), kQuality),
                           .height = drawing.image.height,
                           .width = drawing.image.width};
  return ImagenetExample(image, {.label = label + 1,
                                 .synset = SynsetId(label + 1),
                                 .text = fmt::format("drawing {}", label + 1),
                                 .filename = fmt::format("{}_{}.JPEG", SynsetId(label + 1), number),
                                 .boxes = std::span(&drawing.box, 1)});
}

BuiltSplit BuildSplit(const BuildOptions& options, const std::string& split, int64_t count,
                      std::optional<int> shards) {
  const int num_shards = shards.value_or(DefaultShards(count));
  const auto left_out = WriteShards(
      {.folder = options.output_dir,
       .stem = split + "-",
       .starts = LinspaceBounds(0, count, num_shards),
       .build_description = fmt::format(
           "synthetic {}: {} images of {} classes, width {}, seed {}, {} shards", split, count,
           options.num_classes, options.image_width, options.seed.value_or(0), num_shards),
       .threads = options.threads,
       .progress = [&](int64_t done, int64_t total) { options.Report(split, done, total); }},
      [&](int64_t i) { return MakeExample(options, split, i); });
  return CountClasses(split, count, left_out,
                      [&](int64_t i) { return i % options.num_classes + 1; });
}

void RequireInRange(std::string_view option, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw UsageError({.tag = "io.build",
                    .option = option,
                    .got = value,
                    .want = fmt::format("{} to {}", low, high)});
}

}  // namespace

std::vector<BuiltSplit> BuildSynthetic(const BuildOptions& options) {
  RequireInRange("num_classes", options.num_classes, 1, 1000);
  RequireInRange("num_images", options.num_images, 1, 100'000'000);
  RequireInRange("image_width", options.image_width, 8, kMaxSide);
  std::vector<BuiltSplit> built;
  built.push_back(BuildSplit(options, "train", options.num_images, options.train_shards));
  built.push_back(BuildSplit(options, "validation", std::max<int64_t>(1, options.num_images / 10),
                             options.validation_shards));
  std::vector<std::string> names = {"background"};
  for (int label = 1; label <= options.num_classes; ++label)
    names.push_back(fmt::format("drawing {}", label));
  WriteLabels(options, names);
  return built;
}

}  // namespace carole::io
