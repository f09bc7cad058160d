// Builds ImageNet's shards (ILSVRC 2012) from the official archives, as TF-Slim's tools do. The
// archives are read in place: only an index of the images' offsets is kept in memory. Folders of
// extracted images give the same records.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <optional>

#include "io/archives/tar.h"
#include "io/datasets/build.h"
#include "io/datasets/class_folders.h"
#include "io/datasets/image_example.h"
#include "io/datasets/imagenet/bounding_boxes.h"
#include "io/datasets/imagenet/imagenet_lists.h"
#include "io/datasets/python_random.h"
#include "io/records/shard_writer.h"
#include "src/core/error.h"
#include "src/core/hash.h"
#include "src/core/log.h"
#include "src/core/parallel.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

constexpr char kTag[] = "io.build";
constexpr uint32_t kTfSlimSeed = 12345;

struct RawImage {
  std::string name;     // file name without folder
  uint64_t offset = 0;  // of the image's bytes in the outermost archive
  uint64_t bytes = 0;
  int label = 0;
  fs::path file = {};  // empty if the image is in an archive
};

// The raw images of a split, sorted by label, then name.
struct RawSplit {
  std::string name;                 // path of the archive or folder
  std::unique_ptr<Source> archive;  // null if the images are files
  std::vector<RawImage> images;
};

std::string BaseName(const std::string& path) { return fs::path(path).filename().string(); }

bool IsImageFile(const std::string& name) {
  return name.ends_with(".JPEG") || name.ends_with(".jpeg") || name.ends_with(".jpg");
}

// Throws the error for a name that occurs twice in an archive. Such an image would be trained on
// twice, or it replaced another one.
[[noreturn]] void ThrowDuplicate(const Source& source, const std::string& name, uint64_t offset,
                                 uint64_t next_offset) {
  throw DataError(
      fmt::format("[{}] {}: {}: twice in the archive: got it at bytes {} and {}, want it once; "
                  "re-copy the archive",
                  kTag, source.name(), name, offset, next_offset));
}

// Sorts by label, then name. Throws DataError if a name occurs twice.
void SortWithoutDuplicates(const Source& source, std::vector<RawImage>& images) {
  std::sort(images.begin(), images.end(), [](const RawImage& a, const RawImage& b) {
    return std::tie(a.label, a.name, a.offset) < std::tie(b.label, b.name, b.offset);
  });
  for (size_t i = 1; i < images.size(); ++i) {
    const RawImage &last = images[i - 1], &next = images[i];
    if (last.name == next.name) ThrowDuplicate(source, next.name, last.offset, next.offset);
  }
}

// Returns the images of one synset's inner archive, sorted by name.
std::vector<RawImage> ListImages(const Source& source, const TarFile& archive, int label) {
  std::vector<RawImage> images;
  TarReader reader(source, archive.offset, archive.offset + archive.bytes);
  while (const auto file = reader.Next()) {
    if (IsImageFile(file->name))
      images.push_back({BaseName(file->name), file->offset, file->bytes, label});
  }
  SortWithoutDuplicates(source, images);
  return images;
}

// Returns the images of the training archive, which consists of archives SYNSET.tar. The images are
// sorted by label, then name.
std::vector<RawImage> IndexTrain(const BuildOptions& options, const Source& source) {
  const std::span<const Synset> synsets = ImagenetSynsets();
  std::vector<TarFile> archives(synsets.size());
  TarReader outer(source);
  while (auto file = outer.Next()) {
    const std::string name = BaseName(file->name);
    const int label = name.ends_with(".tar") ? ImagenetLabel(name.substr(0, name.size() - 4)) : 0;
    if (label == 0)
      throw DataError(fmt::format(
          "[{}] {}: unexpected file: got {}, want SYNSET.tar of one of the 1000 synsets", kTag,
          source.name(), file->name));
    TarFile& archive = archives[static_cast<size_t>(label) - 1];
    if (archive.bytes > 0) ThrowDuplicate(source, file->name, archive.offset, file->offset);
    archive = std::move(*file);
  }
  std::vector<std::vector<RawImage>> parts(synsets.size());
  ParallelFor(static_cast<int64_t>(parts.size()), options.threads, [&](int64_t i) {
    if (archives[i].bytes > 0) parts[i] = ListImages(source, archives[i], static_cast<int>(i) + 1);
  });
  std::vector<RawImage> all;
  int64_t found = 0;
  for (auto& part : parts) {
    found += part.empty() ? 0 : 1;
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  if (found < static_cast<int64_t>(synsets.size()))
    LogWarning(kTag, "{}: got images of {} synsets, want {}", source.name(), found, synsets.size());
  return all;
}

// Returns the number in a name such as "ILSVRC2012_val_00000293.JPEG": 293. Returns 0 for names of
// another form.
size_t ValidationNumber(std::string_view name) {
  const size_t start = name.rfind('_') + 1;  // npos + 1 is 0
  size_t number = 0;
  const auto [after, error] =
      std::from_chars(name.data() + start, name.data() + name.size(), number);
  return error == std::errc() && after != name.data() + name.size() && *after == '.' ? number : 0;
}

// Returns the label of a validation image. `location`: the path of the archive or folder.
int ValidationLabel(const std::string& location, const std::string& name) {
  const std::span<const int> labels = ImagenetValidationLabels();
  const size_t number = ValidationNumber(name);
  if (number >= 1 && number <= labels.size()) return labels[number - 1];
  throw DataError(fmt::format(
      "[{}] {}: unexpected file: got {}, want ILSVRC2012_val_00000001.JPEG to {:08}.JPEG", kTag,
      location, name, labels.size()));
}

// Returns the images of the validation archive, which is flat, sorted by label, then name.
std::vector<RawImage> IndexValidation(const Source& source) {
  std::vector<RawImage> all;
  TarReader reader(source);
  while (const auto file = reader.Next()) {
    if (!IsImageFile(file->name)) continue;
    std::string name = BaseName(file->name);
    const int label = ValidationLabel(source.name(), name);
    all.push_back({std::move(name), file->offset, file->bytes, label});
  }
  const size_t want = ImagenetValidationLabels().size();
  if (all.size() < want)
    LogWarning(kTag, "{}: got {} images, want {}", source.name(), all.size(), want);
  SortWithoutDuplicates(source, all);
  return all;
}

// Sorts by label, then name. Throws DataError if a name occurs twice in a class.
std::vector<RawImage> SortFiles(std::vector<RawImage> images) {
  const auto key = [](const RawImage& image) { return std::tie(image.label, image.name); };
  std::ranges::sort(images, {}, key);
  const auto twice = std::ranges::adjacent_find(images, {}, key);
  if (twice == images.end()) return images;
  throw DataError(fmt::format("[{}] {} {}: same name as {} in this class; remove one", kTag,
                              Option("raw_dir"), twice->file.string(),
                              std::next(twice)->file.string()));
}

// Returns the images of folder/SYNSET.
std::vector<RawImage> ListSynsetFolders(const fs::path& folder) {
  const ClassFolders found = ListClassFolders(folder);
  std::vector<int> labels;
  for (const std::string& name : found.classes) {
    labels.push_back(ImagenetLabel(name));
    if (labels.back() == 0)
      throw DataError(fmt::format(
          "[{}] {} {}: unexpected folder: got {}, want folders with the names of the 1000 synsets, "
          "such as {}; for classes of your own pass {}",
          kTag, Option("raw_dir"), folder.string(), name, ImagenetSynsets()[0].id,
          Option("dataset_name", "folder")));
  }
  const size_t want = ImagenetSynsets().size();
  if (labels.size() < want)
    LogWarning(kTag, "{}: got images of {} synsets, want {}", folder.string(), labels.size(), want);
  std::vector<RawImage> images;
  for (const ClassImage& image : found.images)
    images.push_back({.name = image.path.filename().string(),
                      .bytes = fs::file_size(image.path),
                      .label = labels[static_cast<size_t>(image.label)],
                      .file = image.path});
  return SortFiles(std::move(images));
}

// Returns the validation images, which are directly in the folder or in folder/SYNSET.
std::vector<RawImage> ListValidationFolder(const fs::path& folder) {
  std::vector<RawImage> images;
  for (const fs::path& file : ListImageFiles(folder)) {
    const std::string name = file.filename().string();
    images.push_back({.name = name,
                      .bytes = fs::file_size(file),
                      .label = ValidationLabel(folder.string(), name),
                      .file = file});
  }
  return images.empty() ? ListSynsetFolders(folder) : SortFiles(std::move(images));
}

// Returns ShardPlan::build_description: one line with everything that determines the shards'
// content.
std::string DescribeBuild(const std::string& split, const RawSplit& raw, const BoundingBoxes& boxes,
                          uint32_t seed, int num_shards) {
  uint64_t hash = kFnvOffset;
  if (raw.archive) hash = Fnv1a64(std::to_string(ModificationTime(raw.name)), hash);
  for (const RawImage& image : raw.images) {
    const int64_t position =
        raw.archive ? static_cast<int64_t>(image.offset) : ModificationTime(image.file);
    hash = Fnv1a64(fmt::format("{} {} {}\n", image.name, position, image.bytes), hash);
  }
  return fmt::format("imagenet {}: {} images {:016x}, {} boxes, seed {}, {} shards", split,
                     raw.images.size(), hash, boxes.num_boxes(), seed, num_shards);
}

// Returns the place of an image for messages.
std::string Locate(const RawSplit& raw, const RawImage& image) {
  if (!raw.archive) return image.file.string();
  return fmt::format("{}: {} at byte {}", raw.name, image.name, image.offset);
}

std::string ReadImage(const RawSplit& raw, const RawImage& image) {
  if (image.bytes > kMaxImageFileBytes) {
    throw DataError(fmt::format("[{}] {}: {}: too large: got {} bytes, want at most {}", kTag,
                                raw.name, image.name, image.bytes, kMaxImageFileBytes));
  }
  if (!raw.archive) return ReadAll(*OpenFile(image.file), kMaxImageFileBytes);
  std::string bytes(image.bytes, '\0');
  bytes.resize(raw.archive->ReadAt(image.offset, bytes));
  return bytes;
}

BuiltSplit BuildSplit(const BuildOptions& options, const std::string& split, const RawSplit& raw,
                      const BoundingBoxes& boxes, int num_shards) {
  const uint32_t seed = options.seed.value_or(kTfSlimSeed);
  const std::string build_description = DescribeBuild(split, raw, boxes, seed, num_shards);
  std::vector<uint32_t> order(raw.images.size());
  std::iota(order.begin(), order.end(), 0u);
  PythonRandom(seed).Shuffle(order);
  order.resize(static_cast<size_t>(NumToBuild(options, static_cast<int64_t>(order.size()))));
  OrientationCount orientations;
  const auto left_out = WriteShards(
      {.folder = options.output_dir,
       .stem = split + "-",
       .starts = ShardStarts(static_cast<int64_t>(order.size()), num_shards),
       .build_description = fmt::format("{}, first {}", build_description, order.size()),
       .max_bad = options.max_bad_records,
       .threads = options.threads,
       .progress = [&](int64_t done, int64_t total) { options.Report(split, done, total); }},
      [&](int64_t i) {
        const RawImage& image = raw.images[order[static_cast<size_t>(i)]];
        const Synset& synset = ImagenetSynsets()[image.label - 1];
        const CheckedImage checked =
            CheckImage(ReadImage(raw, image), {.only_jpeg = true}, Locate(raw, image));
        orientations.Add(checked);
        return ImagenetExample(checked, {.label = image.label,
                                         .synset = synset.id,
                                         .text = synset.text,
                                         .filename = image.name,
                                         .boxes = boxes.Find(image.name)});
      });
  orientations.Log(split, "training ignores that, as TensorFlow does");
  return CountClasses(split, static_cast<int64_t>(order.size()), left_out,
                      [&](int64_t i) { return raw.images[order[static_cast<size_t>(i)]].label; });
}

// Loads options.bounding_boxes, or the first known file in raw_dir.
BoundingBoxes LoadBoxes(const BuildOptions& options) {
  fs::path path = options.bounding_boxes;
  for (const char* name : {"imagenet_2012_bounding_boxes.csv", "ILSVRC2012_bbox_train_v2.tar.gz",
                           "annotations.tar.gz"}) {
    if (path.empty() && fs::exists(options.raw_dir / name)) path = options.raw_dir / name;
  }
  if (path.empty()) {
    LogWarning(kTag,
               "{}: no bounding boxes found, so the records will have none; pass {} to add them",
               options.raw_dir.string(), Option("bounding_boxes"));
    return {};
  }
  BoundingBoxes boxes = BoundingBoxes::Load(path);
  LogInfo(kTag, "{}: {} boxes of {} images", path.string(), boxes.num_boxes(), boxes.num_images());
  return boxes;
}

// Returns the first of these folders that exists, or an empty path.
fs::path FindFolder(const fs::path& raw_dir, std::initializer_list<std::string_view> names) {
  for (const char* root : {"", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC"}) {
    for (const std::string_view name : names) {
      if (fs::is_directory(raw_dir / root / name)) return raw_dir / root / name;
    }
  }
  return {};
}

// Returns the images of the archive, or else of the folder; nullopt if there is neither.
template <typename IndexArchive, typename ListFolder>
std::optional<RawSplit> FindRawSplit(const fs::path& archive, const fs::path& folder,
                                     IndexArchive&& index_archive, ListFolder&& list_folder) {
  if (!fs::exists(archive) && folder.empty()) return std::nullopt;
  RawSplit raw{.name = fs::exists(archive) ? archive.string() : folder.string()};
  LogInfo(kTag, "{}: listing the images", raw.name);
  if (fs::exists(archive)) {
    raw.archive = OpenFile(archive);
    raw.images = index_archive(*raw.archive);
  } else {
    raw.images = list_folder(folder);
  }
  return raw;
}

}  // namespace

std::vector<BuiltSplit> BuildImagenet(const BuildOptions& options) {
  const fs::path train = options.raw_dir / "ILSVRC2012_img_train.tar";
  const fs::path validation = options.raw_dir / "ILSVRC2012_img_val.tar";
  const fs::path train_folder = FindFolder(options.raw_dir, {"train"});
  const fs::path validation_folder = FindFolder(options.raw_dir, {"val", "validation"});
  if (!fs::exists(train) && !fs::exists(validation) && train_folder.empty() &&
      validation_folder.empty()) {
    throw DataError(fmt::format(
        "[{}] {} {}: no archives or folders: want {} or train/SYNSET/*.JPEG, and {} or val/*.JPEG",
        kTag, Option("raw_dir"), options.raw_dir.string(), train.filename().string(),
        validation.filename().string()));
  }
  const BoundingBoxes boxes = LoadBoxes(options);
  std::vector<BuiltSplit> built;
  if (const auto raw =
          FindRawSplit(validation, validation_folder, IndexValidation, ListValidationFolder)) {
    built.push_back(
        BuildSplit(options, "validation", *raw, boxes, options.validation_shards.value_or(128)));
  } else {
    LogWarning(kTag, "{}: not found; only the train split is built", validation.string());
  }
  const auto index_train = [&](const Source& source) { return IndexTrain(options, source); };
  if (const auto raw = FindRawSplit(train, train_folder, index_train, ListSynsetFolders)) {
    built.insert(built.begin(),
                 BuildSplit(options, "train", *raw, boxes, options.train_shards.value_or(1024)));
  } else {
    LogWarning(kTag, "{}: not found; only the validation split is built", train.string());
  }
  WriteLabels(options, ImagenetClassNames());
  return built;
}

}  // namespace carole::io
