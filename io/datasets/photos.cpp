// Builds data sets from photos in one folder per class: TF-Slim's flowers, and the user's photos.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/datasets/build.h"
#include "io/datasets/class_folders.h"
#include "io/datasets/image_example.h"
#include "io/datasets/imagenet/imagenet_lists.h"
#include "io/datasets/python_random.h"
#include "io/records/shard_writer.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/hash.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

struct Split {
  std::vector<ClassImage> train;
  std::vector<ClassImage> validation;
};

// Splits as TF-Slim does: shuffles all photos; the first 350 are for validation. If there are fewer
// than the original 3670 photos, a tenth of them.
Split SplitAsTfSlim(const ClassFolders& photos, uint32_t seed) {
  constexpr size_t kTfSlimPhotos = 3670;
  constexpr int64_t kTfSlimValidation = 350;
  std::vector<ClassImage> order = photos.images;
  PythonRandom(seed).Shuffle(order);
  const auto count = static_cast<int64_t>(order.size());
  const int64_t validation = order.size() >= kTfSlimPhotos ? kTfSlimValidation : count / 10;
  return {.train = {order.begin() + validation, order.end()},
          .validation = {order.begin(), order.begin() + validation}};
}

// Uses the same fraction of each class for validation, rounded, but never a whole class. Then
// shuffles each split.
Split SplitEachClass(const ClassFolders& photos, double fraction, uint32_t seed) {
  PythonRandom random(seed);
  Split split;
  for (auto first = photos.images.begin(); first != photos.images.end();) {
    const auto last = std::find_if(first, photos.images.end(), [&](const ClassImage& photo) {
      return photo.label != first->label;
    });
    std::vector<ClassImage> order(first, last);
    random.Shuffle(order);
    const auto count = static_cast<int64_t>(order.size());
    const int64_t validation =
        std::min<int64_t>(std::llround(fraction * static_cast<double>(count)), count - 1);
    split.validation.insert(split.validation.end(), order.begin(), order.begin() + validation);
    split.train.insert(split.train.end(), order.begin() + validation, order.end());
    first = last;
  }
  random.Shuffle(split.train);
  random.Shuffle(split.validation);
  return split;
}

Split ShuffleSplits(std::vector<ClassImage> train, std::vector<ClassImage> validation,
                    uint32_t seed) {
  PythonRandom random(seed);
  random.Shuffle(train);
  random.Shuffle(validation);
  return {.train = std::move(train), .validation = std::move(validation)};
}

// Returns the bounds of shards as in TF-Slim's flowers: ceil(count / num_shards) photos each; the
// last shard has the rest.
std::vector<int64_t> EvenStarts(int64_t count, int num_shards) {
  const int64_t each = DivideUp(count, num_shards);
  if (each * (num_shards - 1) >= count) return LinspaceBounds(0, count, num_shards);
  std::vector<int64_t> starts;
  for (int s = 0; s <= num_shards; ++s) starts.push_back(std::min(s * each, count));
  return starts;
}

BuiltSplit BuildSplit(const BuildOptions& options, std::string_view stem, const std::string& split,
                      const std::vector<ClassImage>& photos, int num_shards) {
  const int64_t count = NumToBuild(options, static_cast<int64_t>(photos.size()));
  if (count == 0) return {.name = split};
  uint64_t hash = kFnvOffset;
  for (const ClassImage& photo : photos)
    hash = Fnv1a64(fmt::format("{} {} {} {}\n", photo.name, photo.label, fs::file_size(photo.path),
                               ModificationTime(photo.path)),
                   hash);
  num_shards = static_cast<int>(std::min<int64_t>(num_shards, count));
  OrientationCount orientations;
  const auto left_out = WriteShards(
      {.folder = options.output_dir,
       .stem = fmt::format("{}{}", stem, split == "train" ? "train" : "validation") +
               (stem.empty() ? "-" : "_"),
       .suffix = ".tfrecord",
       .starts = EvenStarts(count, num_shards),
       .build_description = fmt::format(
           "{} {}: first {} of {} images {:016x}, {} shards{}", options.dataset->name, split, count,
           photos.size(), hash, num_shards, options.apply_exif_orientation ? ", upright" : ""),
       .max_bad = options.max_bad_records,
       .threads = options.threads,
       .progress = [&](int64_t done, int64_t total) { options.Report(split, done, total); }},
      [&](int64_t i) {
        const ClassImage& photo = photos[static_cast<size_t>(i)];
        std::string bytes = ReadAll(*OpenFile(photo.path), kMaxImageFileBytes);
        const CheckedImage image =
            CheckImage(std::move(bytes), {.apply_exif_orientation = options.apply_exif_orientation},
                       photo.path.string());
        orientations.Add(image);
        return PhotoExample(image, photo.label);
      });
  orientations.Log(split, options.apply_exif_orientation
                              ? "they were turned"
                              : "training ignores that, as TensorFlow does; " +
                                    Option("apply_exif_orientation") + " turns them");
  return CountClasses(split, count, left_out,
                      [&](int64_t i) { return photos[static_cast<size_t>(i)].label; });
}

}  // namespace

std::vector<BuiltSplit> BuildFlowers(const BuildOptions& options) {
  constexpr int kShards = 5;
  const fs::path inner = options.raw_dir / "flower_photos";
  const ClassFolders photos = ListClassFolders(fs::exists(inner) ? inner : options.raw_dir);
  const auto& names = options.dataset->class_names;
  if (!std::equal(photos.classes.begin(), photos.classes.end(), names.begin(), names.end())) {
    throw DataError(
        fmt::format("[io.build] {} {}: wrong class folders: want {}; for your own classes pass {}",
                    Option("raw_dir"), options.raw_dir.string(), JoinTexts(names),
                    Option("dataset_name", "folder")));
  }
  const Split split = SplitAsTfSlim(photos, options.seed.value_or(0));
  std::vector<BuiltSplit> built;
  built.push_back(BuildSplit(options, "flowers_", "train", split.train,
                             options.train_shards.value_or(kShards)));
  built.push_back(BuildSplit(options, "flowers_", "validation", split.validation,
                             options.validation_shards.value_or(kShards)));
  WriteLabels(options, photos.classes);
  return built;
}

std::vector<BuiltSplit> BuildFolder(const BuildOptions& options) {
  const auto shards_for = [](const std::vector<ClassImage>& images) {
    return DefaultShards(static_cast<int64_t>(images.size()));
  };
  const SplitFolders photos = ListSplitFolders(options.raw_dir);
  if (std::ranges::all_of(photos.train.classes,
                          [](const std::string& name) { return ImagenetLabel(name) > 0; })) {
    LogInfo("io.build", "{}: the classes are synsets of ImageNet; {} would keep its labels",
            options.raw_dir.string(), Option("dataset_name", "imagenet"));
  }
  const uint32_t seed = options.seed.value_or(0);
  const Split split = photos.validation
                          ? ShuffleSplits(photos.train.images, photos.validation->images, seed)
                          : SplitEachClass(photos.train, options.validation_fraction, seed);
  if (split.validation.empty()) {
    LogWarning("io.build", "{}: too few images for a validation split", options.raw_dir.string());
  }
  std::vector<BuiltSplit> built;
  built.push_back(BuildSplit(options, "", "train", split.train,
                             options.train_shards.value_or(shards_for(split.train))));
  built.push_back(BuildSplit(options, "", "validation", split.validation,
                             options.validation_shards.value_or(shards_for(split.validation))));
  WriteLabels(options, photos.train.classes);
  return built;
}

}  // namespace carole::io
