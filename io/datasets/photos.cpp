// Builds data sets from photos in one folder per class: TF-Slim's flowers, and the user's photos.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/datasets/build.h"
#include "io/datasets/image_example.h"
#include "io/datasets/python_random.h"
#include "io/image/image.h"
#include "io/records/shard_writer.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/hash.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

struct Photo {
  fs::path path;
  int label = 0;
};

struct Photos {
  std::vector<std::string> classes;  // the folders' names, sorted
  std::vector<Photo> all;            // sorted by label, then name
};

struct Split {
  std::vector<Photo> train;
  std::vector<Photo> validation;
};

// Returns the entries of a folder that are not hidden, sorted by name.
std::vector<fs::path> ListVisible(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().starts_with('.')) entries.push_back(entry.path());
  }
  const std::string location = Option("raw_dir") + " " + folder.string();
  if (error == std::errc::no_such_file_or_directory)
    throw DataError(fmt::format("[io.build] {}: no such folder; correct the path", location));
  if (error) ThrowDiskError("io.build", location, "list", error.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Throws DataError if a file with the name of an image is not a regular file, such as a broken
// link.
void CheckIsFile(const fs::path& image) {
  std::error_code error;
  if (fs::is_regular_file(image, error)) return;
  throw DataError(fmt::format("[io.build] {} {}: not an image file: got {}; remove it",
                              Option("raw_dir"), image.string(),
                              fs::exists(image, error) ? "a folder or device" : "a broken link"));
}

// Throws DataError if a class name has a line break, because labels.txt has one line per class.
void CheckFolderName(const fs::path& folder) {
  if (folder.filename().string().find_first_of("\n\r") == std::string::npos) return;
  throw DataError(
      fmt::format("[io.build] {} {}: line break in the name of a class folder; rename the folder",
                  Option("raw_dir"), folder.parent_path().string()));
}

// Nothing is ignored silently.
void WarnAboutIgnoredFiles(const fs::path& root, int64_t num_files, const std::string& example,
                           const std::vector<std::string>& empty_classes) {
  if (num_files > 0)
    LogWarning("io.build", "{}: {} files are ignored, such as {}: want {}", root.string(), num_files,
               example, JoinTexts(kImageExtensions));
  for (const std::string& name : empty_classes)
    LogWarning("io.build", "{}/{}: no images in this folder, so it is not a class", root.string(),
               name);
}

Photos ListPhotos(const fs::path& root) {
  Photos photos;
  int64_t left_out = 0;
  std::string example;
  std::vector<std::string> empty;
  for (const fs::path& folder : ListVisible(root)) {
    if (!fs::is_directory(folder)) continue;
    CheckFolderName(folder);
    const size_t before = photos.all.size();
    const int label = static_cast<int>(photos.classes.size());
    for (const fs::path& file : ListVisible(folder)) {
      if (HasImageName(file)) {
        CheckIsFile(file);
        photos.all.push_back({file, label});
      } else {
        ++left_out;
        example = file.filename().string();
      }
    }
    (photos.all.size() > before ? photos.classes : empty).push_back(folder.filename().string());
  }
  WarnAboutIgnoredFiles(root, left_out, example, empty);
  if (photos.all.empty()) {
    throw DataError(
        fmt::format("[io.build] {} {}: no images: want one folder of .jpg or .png files per class",
                    Option("raw_dir"), root.string()));
  }
  return photos;
}

// Splits as TF-Slim does: shuffles all photos; the first 350 are for validation. If there are fewer
// than the original 3670 photos, a tenth of them.
Split SplitAsTfSlim(const Photos& photos, uint32_t seed) {
  constexpr size_t kTfSlimPhotos = 3670;
  constexpr int64_t kTfSlimValidation = 350;
  std::vector<Photo> order = photos.all;
  PythonRandom(seed).Shuffle(order);
  const auto count = static_cast<int64_t>(order.size());
  const int64_t validation = order.size() >= kTfSlimPhotos ? kTfSlimValidation : count / 10;
  return {.train = {order.begin() + validation, order.end()},
          .validation = {order.begin(), order.begin() + validation}};
}

// Uses the same fraction of each class for validation, rounded, but never a whole class. Then
// shuffles each split.
Split SplitEachClass(const Photos& photos, double fraction, uint32_t seed) {
  PythonRandom random(seed);
  Split split;
  for (auto first = photos.all.begin(); first != photos.all.end();) {
    const auto last = std::find_if(first, photos.all.end(),
                                   [&](const Photo& photo) { return photo.label != first->label; });
    std::vector<Photo> order(first, last);
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

// Returns the bounds of shards as in TF-Slim's flowers: ceil(count / num_shards) photos each; the
// last shard has the rest.
std::vector<int64_t> EvenStarts(int64_t count, int num_shards) {
  const int64_t each = DivideUp(count, num_shards);
  if (each * (num_shards - 1) >= count) return LinspaceBounds(0, count, num_shards);
  std::vector<int64_t> starts;
  for (int s = 0; s <= num_shards; ++s) starts.push_back(std::min(s * each, count));
  return starts;
}

void BuildSplit(const BuildOptions& options, std::string_view stem, const std::string& split,
                const std::vector<Photo>& photos, int num_shards) {
  const int64_t count = NumToBuild(options, static_cast<int64_t>(photos.size()));
  if (count == 0) return;
  uint64_t hash = kFnvOffset;
  for (const Photo& photo : photos)
    hash = Fnv1a64(fmt::format("{} {} {} {}\n", photo.path.filename().string(), photo.label,
                               fs::file_size(photo.path), ModificationTime(photo.path)),
                   hash);
  num_shards = static_cast<int>(std::min<int64_t>(num_shards, count));
  WriteShards(
      {.folder = options.output_dir,
       .stem = fmt::format("{}{}", stem, split == "train" ? "train" : "validation") +
               (stem.empty() ? "-" : "_"),
       .suffix = ".tfrecord",
       .starts = EvenStarts(count, num_shards),
       .build_description =
           fmt::format("{} {}: first {} of {} images {:016x}, {} shards", options.dataset->name,
                       split, count, photos.size(), hash, num_shards),
       .max_bad = options.max_bad_records,
       .threads = options.threads,
       .progress = [&](int64_t done, int64_t total) { options.Report(split, done, total); }},
      [&](int64_t i) {
        const Photo& photo = photos[static_cast<size_t>(i)];
        std::string bytes = ReadAll(*OpenFile(photo.path), kMaxImageFileBytes);
        return PhotoExample(CheckImage(std::move(bytes), false, photo.path.string()), photo.label);
      });
}

}  // namespace

void BuildFlowers(const BuildOptions& options) {
  constexpr int kShards = 5;
  const fs::path inner = options.raw_dir / "flower_photos";
  const Photos photos = ListPhotos(fs::exists(inner) ? inner : options.raw_dir);
  const auto& names = options.dataset->class_names;
  if (!std::equal(photos.classes.begin(), photos.classes.end(), names.begin(), names.end())) {
    throw DataError(
        fmt::format("[io.build] {} {}: wrong class folders: want {}; for your own classes pass {}",
                    Option("raw_dir"), options.raw_dir.string(), JoinTexts(names),
                    Option("dataset_name", "folder")));
  }
  const Split split = SplitAsTfSlim(photos, options.seed.value_or(0));
  BuildSplit(options, "flowers_", "train", split.train, options.train_shards.value_or(kShards));
  BuildSplit(options, "flowers_", "validation", split.validation,
             options.validation_shards.value_or(kShards));
  WriteLabels(options, photos.classes);
}

void BuildFolder(const BuildOptions& options) {
  const auto shards_for = [](const std::vector<Photo>& photos) {
    return DefaultShards(static_cast<int64_t>(photos.size()));
  };
  const Photos photos = ListPhotos(options.raw_dir);
  const Split split = SplitEachClass(photos, options.validation_fraction, options.seed.value_or(0));
  if (split.validation.empty()) {
    LogWarning("io.build", "{}: too few images for a validation split", options.raw_dir.string());
  }
  BuildSplit(options, "", "train", split.train,
             options.train_shards.value_or(shards_for(split.train)));
  BuildSplit(options, "", "validation", split.validation,
             options.validation_shards.value_or(shards_for(split.validation)));
  WriteLabels(options, photos.classes);
}

}  // namespace carole::io
