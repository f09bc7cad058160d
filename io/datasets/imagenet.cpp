// ImageNet (ILSVRC 2012): the archives as they are distributed to shards, as TF-Slim's tools make
// them. The archives are read in place: an index of where their pictures lie is all that is kept.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>

#include "io/archives/tar.h"
#include "io/datasets/bounding_boxes.h"
#include "io/datasets/build.h"
#include "io/datasets/image_example.h"
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
constexpr uint32_t kSlimSeed = 12345;

struct TarPicture {
  std::string name;  // without folder
  uint64_t offset = 0;
  uint64_t bytes = 0;
  int label = 0;
};

std::string BaseName(const std::string& path) { return fs::path(path).filename().string(); }

bool IsPicture(const std::string& name) {
  return name.ends_with(".JPEG") || name.ends_with(".jpeg") || name.ends_with(".jpg");
}

// What an archive has twice would be trained on twice, or lose what it took the place of.
[[noreturn]] void FailTwice(const Source& source, const std::string& name, uint64_t offset,
                            uint64_t next_offset) {
  throw DataError(
      fmt::format("[{}] {}: {}: twice in the archive: got it at bytes {} and {}, want it once; "
                  "copy the archive again",
                  kTag, source.name(), name, offset, next_offset));
}

// Sorted by label, then name.
void Sort(const Source& source, std::vector<TarPicture>& pictures) {
  std::sort(pictures.begin(), pictures.end(), [](const TarPicture& a, const TarPicture& b) {
    return std::tie(a.label, a.name, a.offset) < std::tie(b.label, b.name, b.offset);
  });
  for (size_t i = 1; i < pictures.size(); ++i) {
    const TarPicture &last = pictures[i - 1], &next = pictures[i];
    if (last.name == next.name) FailTwice(source, next.name, last.offset, next.offset);
  }
}

// The pictures of one synset, sorted by name.
std::vector<TarPicture> ListPictures(const Source& source, const TarFile& archive, int label) {
  std::vector<TarPicture> pictures;
  TarReader reader(source, archive.offset, archive.offset + archive.bytes);
  while (const auto file = reader.Next()) {
    if (IsPicture(file->name))
      pictures.push_back({BaseName(file->name), file->offset, file->bytes, label});
  }
  Sort(source, pictures);
  return pictures;
}

// Pictures of an archive of archives SYNSET.tar, sorted by label, then name.
std::vector<TarPicture> IndexTrain(const BuildOptions& options, const Source& source) {
  const std::span<const Synset> synsets = ImagenetSynsets();
  std::vector<TarFile> archives(synsets.size());
  TarReader outer(source);
  while (auto file = outer.Next()) {
    const std::string name = BaseName(file->name);
    const int label = name.ends_with(".tar") ? ImagenetLabel(name.substr(0, name.size() - 4)) : 0;
    if (label == 0)
      throw DataError(fmt::format("[{}] {}: got {}, want SYNSET.tar of the 1000 synsets", kTag,
                                  source.name(), file->name));
    TarFile& archive = archives[static_cast<size_t>(label) - 1];
    if (archive.bytes > 0) FailTwice(source, file->name, archive.offset, file->offset);
    archive = std::move(*file);
  }
  std::vector<std::vector<TarPicture>> parts(synsets.size());
  ParallelFor(static_cast<int64_t>(parts.size()), options.threads, [&](int64_t i) {
    if (archives[i].bytes > 0)
      parts[i] = ListPictures(source, archives[i], static_cast<int>(i) + 1);
  });
  std::vector<TarPicture> all;
  int64_t found = 0;
  for (auto& part : parts) {
    found += part.empty() ? 0 : 1;
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  if (found < static_cast<int64_t>(synsets.size()))
    LogWarning(kTag, "{}: got pictures of {} synsets, want {}", source.name(), found,
               synsets.size());
  return all;
}

// "ILSVRC2012_val_00000293.JPEG" -> 293; 0 for names of another form.
size_t ValidationNumber(std::string_view name) {
  const size_t start = name.rfind('_') + 1;  // 0 when there is none
  size_t number = 0;
  const auto [after, error] =
      std::from_chars(name.data() + start, name.data() + name.size(), number);
  return error == std::errc() && after != name.data() + name.size() && *after == '.' ? number : 0;
}

// Pictures of a flat archive, sorted by label, then name.
std::vector<TarPicture> IndexValidation(const Source& source) {
  const std::span<const int> labels = ImagenetValidationLabels();
  std::vector<TarPicture> all;
  TarReader reader(source);
  while (const auto file = reader.Next()) {
    if (!IsPicture(file->name)) continue;
    std::string name = BaseName(file->name);
    const size_t number = ValidationNumber(name);
    if (number < 1 || number > labels.size()) {
      throw DataError(
          fmt::format("[{}] {}: got {}, want ILSVRC2012_val_00000001.JPEG to {:08}.JPEG", kTag,
                      source.name(), file->name, labels.size()));
    }
    all.push_back({std::move(name), file->offset, file->bytes, labels[number - 1]});
  }
  if (all.size() < labels.size())
    LogWarning(kTag, "{}: got {} pictures, want {}", source.name(), all.size(), labels.size());
  Sort(source, all);
  return all;
}

// Everything that decides what the shards hold, in one line.
std::string Recipe(const std::string& split, const std::vector<TarPicture>& pictures,
                   const BoundingBoxes& boxes, uint32_t seed, int num_shards, const fs::path& tar) {
  uint64_t hash = Fnv1a64(std::to_string(WrittenAt(tar)), kFnvOffset);
  for (const TarPicture& picture : pictures)
    hash = Fnv1a64(fmt::format("{} {} {}\n", picture.name, picture.offset, picture.bytes), hash);
  return fmt::format("imagenet {}: {} images {:016x}, {} boxes, seed {}, {} shards", split,
                     pictures.size(), hash, boxes.num_boxes(), seed, num_shards);
}

std::string ReadPicture(const Source& source, const TarPicture& picture) {
  if (picture.bytes > kMaxPictureBytes) {
    throw DataError(fmt::format("[{}] {}: {}: too long: got {} bytes, want at most {}", kTag,
                                source.name(), picture.name, picture.bytes, kMaxPictureBytes));
  }
  std::string bytes(picture.bytes, '\0');
  bytes.resize(source.ReadAt(picture.offset, bytes));
  return bytes;
}

void BuildSplit(const BuildOptions& options, const std::string& split, const Source& source,
                std::vector<TarPicture> pictures, const BoundingBoxes& boxes, int num_shards) {
  const uint32_t seed = options.seed.value_or(kSlimSeed);
  const std::string recipe = Recipe(split, pictures, boxes, seed, num_shards, source.name());
  std::vector<uint32_t> order(pictures.size());
  std::iota(order.begin(), order.end(), 0u);
  PythonRandom(seed).Shuffle(order);
  order.resize(static_cast<size_t>(NumToBuild(options, static_cast<int64_t>(order.size()))));
  WriteShards(
      {.folder = options.output_dir,
       .stem = split + "-",
       .starts = ShardStarts(static_cast<int64_t>(order.size()), num_shards),
       .recipe = fmt::format("{}, first {}", recipe, order.size()),
       .max_bad = options.max_bad_records,
       .threads = options.threads,
       .progress = [&](int64_t done, int64_t total) { options.Report(split, done, total); }},
      [&](int64_t i) {
        const TarPicture& picture = pictures[order[static_cast<size_t>(i)]];
        const std::string place =
            fmt::format("{}: {} at byte {}", source.name(), picture.name, picture.offset);
        const Synset& synset = ImagenetSynsets()[picture.label - 1];
        return ImagenetExample(CheckImage(ReadPicture(source, picture), true, place),
                               {.label = picture.label,
                                .synset = synset.id,
                                .text = synset.text,
                                .filename = picture.name,
                                .boxes = boxes.Find(picture.name)});
      });
}

BoundingBoxes LoadBoxes(const BuildOptions& options) {
  fs::path path = options.bounding_boxes;
  for (const char* name : {"imagenet_2012_bounding_boxes.csv", "ILSVRC2012_bbox_train_v2.tar.gz",
                           "annotations.tar.gz"}) {
    if (path.empty() && fs::exists(options.raw_dir / name)) path = options.raw_dir / name;
  }
  if (path.empty()) {
    LogWarning(kTag,
               "{}: no bounding boxes there: records get none; or name them with "
               "--bounding_boxes",
               options.raw_dir.string());
    return {};
  }
  BoundingBoxes boxes = BoundingBoxes::Load(path);
  LogInfo(kTag, "{}: {} boxes of {} images", path.string(), boxes.num_boxes(), boxes.num_images());
  return boxes;
}

}  // namespace

void BuildImagenet(const BuildOptions& options) {
  const fs::path train = options.raw_dir / "ILSVRC2012_img_train.tar";
  const fs::path validation = options.raw_dir / "ILSVRC2012_img_val.tar";
  if (!fs::exists(train) && !fs::exists(validation)) {
    throw DataError(fmt::format("[{}] --raw_dir {}: holds neither {} nor {}", kTag,
                                options.raw_dir.string(), train.filename().string(),
                                validation.filename().string()));
  }
  const BoundingBoxes boxes = LoadBoxes(options);
  if (fs::exists(validation)) {
    const auto source = OpenFile(validation);
    BuildSplit(options, "validation", *source, IndexValidation(*source), boxes,
               options.validation_shards.value_or(128));
  } else {
    LogWarning(kTag, "{}: is not there: train only", validation.string());
  }
  if (fs::exists(train)) {
    const auto source = OpenFile(train);
    LogInfo(kTag, "{}: looking for the pictures", train.string());
    BuildSplit(options, "train", *source, IndexTrain(options, *source), boxes,
               options.train_shards.value_or(1024));
  } else {
    LogWarning(kTag, "{}: is not there: validation only", train.string());
  }
  WriteLabels(options, ImagenetClassNames());
}

}  // namespace carole::io
