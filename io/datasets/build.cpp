#include "io/datasets/build.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/image/image.h"
#include "io/records/shard_writer.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/hash.h"
#include "src/core/log.h"

namespace carole::io {
namespace {

// Returns the plan of a split that is a single file.
ShardPlan MakePlan(const BuildOptions& options, const RawImages& images) {
  const auto all = static_cast<int64_t>(images.labels.size());
  const int64_t count = NumToBuild(options, all);
  const uint64_t hash = Fnv1a64(images.labels, Fnv1a64(images.pixels));
  return {.folder = options.output_dir,
          .stem = std::string(FindSplit(*options.dataset, images.split).pattern),
          .is_single_file = true,
          .starts = {0, count},
          .build_description = fmt::format("{} {}: first {} of {} images {:016x}",
                                           options.dataset->name, images.split, count, all, hash),
          .threads = options.threads,
          .progress = [&options, split = images.split](int64_t done, int64_t total) {
            options.Report(split, done, total);
          }};
}

}  // namespace

void CheckLabels(const DatasetEntry& dataset, std::string_view labels, const std::string& source) {
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<uint8_t>(labels[i]);
    if (label < dataset.num_classes) continue;
    throw DataError(fmt::format("[io.build] {}: image {}: label out of range: got {}, want 0 to {}",
                                source, i, label, dataset.num_classes - 1));
  }
}

std::vector<BuiltSplit> WriteImages(const BuildOptions& options,
                                    const std::vector<RawImages>& splits) {
  std::vector<ShardPlan> plans;
  for (const RawImages& images : splits) plans.push_back(MakePlan(options, images));
  for (const ShardPlan& plan : plans) CheckShards(plan);
  std::vector<BuiltSplit> built;
  for (size_t split = 0; split < splits.size(); ++split) {
    const RawImages& images = splits[split];
    const auto* pixels = reinterpret_cast<const uint8_t*>(images.pixels.data());
    const size_t bytes = static_cast<size_t>(images.height) * images.width * images.channels;
    const auto label_of = [&](int64_t i) -> int64_t {
      return static_cast<uint8_t>(images.labels[static_cast<size_t>(i)]);
    };
    const auto left_out = WriteShards(plans[split], [&](int64_t i) {
      const auto index = static_cast<size_t>(i);
      const ImageView image{.pixels = pixels + index * bytes,
                            .height = images.height,
                            .width = images.width,
                            .channels = images.channels};
      return PhotoExample({.bytes = EncodePng(image), .height = image.height, .width = image.width},
                          label_of(i));
    });
    built.push_back(CountClasses(images.split, plans[split].starts.back(), left_out, label_of));
  }
  return built;
}

void WriteLabels(const BuildOptions& options, std::span<const std::string> names) {
  MakeFolder("io.build", options.output_dir.string());
  const std::unique_ptr<Sink> sink = CreateFile(options.output_dir / "labels.txt");
  for (size_t i = 0; i < names.size(); ++i) sink->Append(fmt::format("{}:{}\n", i, names[i]));
  sink->Commit();
}

void WriteLabels(const BuildOptions& options) {
  const auto& names = options.dataset->class_names;
  WriteLabels(options, std::vector<std::string>(names.begin(), names.end()));
}

void OrientationCount::Log(std::string_view split, std::string_view remark) const {
  if (count_ > 0)
    LogWarning("io.build", "{}: {} images are not upright by their EXIF data: {}", split,
               count_.load(), remark);
}

int64_t NumToBuild(const BuildOptions& options, int64_t count) {
  return options.max_images > 0 ? std::min(options.max_images, count) : count;
}

int DefaultShards(int64_t count) {
  constexpr int64_t kImagesPerShard = 1024;
  return static_cast<int>(DivideUp(count, kImagesPerShard));
}

int64_t ModificationTime(const std::filesystem::path& file) {
  return std::filesystem::last_write_time(file).time_since_epoch().count();
}

}  // namespace carole::io
