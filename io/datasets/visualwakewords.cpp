// Builds TF-Slim's Visual Wake Words (Chowdhery et al. 2019) from COCO: is there a person in the
// image?
//
// An image has the label 1 if it has an annotation of the category "person" whose area is more than
// kMinArea of the image, else 0. The annotations of COCO's training images take 450 MB of JSON,
// most of it outlines. So each element of a list is read, used and forgotten, and outlines are
// skipped.
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/datasets/build.h"
#include "io/records/example.h"
#include "io/records/shard_writer.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/hash.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kPerson = "person";
constexpr double kMinArea = 0.005;  // as in TF-Slim

struct CocoImage {
  int64_t id = 0;
  std::string file;
  double pixels = 0;
  int64_t label = 0;
};

// One person, as a share of an image that may come later in the file.
struct Annotation {
  int64_t image = 0, category = 0;
  double area = 0;
};

// Collects what a file of COCO's annotations says.
class CocoReader {
 public:
  explicit CocoReader(const fs::path& path) : path_(path) {}

  // Returns the images in the order of the file, with their labels.
  std::vector<CocoImage> Read() {
    std::ifstream file(path_);
    if (!file) ThrowDiskError("io.build", path_.string(), "open", errno);
    try {
      const json rest =
          json::parse(file, [this](int depth, json::parse_event_t event, json& value) {
            return Accept(depth, event, value);
          });
      (void)rest;  // the lists were read by Accept()
    } catch (const json::exception& error) {
      throw DataError(fmt::format(
          "[io.build] {}: is not a file of COCO's annotations: {}; want its instances_*.json",
          path_.string(), error.what()));
    }
    if (images_.empty() || person_ < 0)
      throw DataError(
          fmt::format("[io.build] {}: got {} images and {} category \"{}\", want COCO's "
                      "instances_*.json",
                      path_.string(), images_.size(), person_ < 0 ? "no" : "a", kPerson));
    Label();
    return std::move(images_);
  }

 private:
  // The depth of an element of one of the lists "images", "annotations" and "categories".
  static constexpr int kElementDepth = 2;

  // Returns false for values that are not kept.
  bool Accept(int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key) {
      if (depth == 1) section_ = value.get<std::string>();
      return value != "segmentation";
    }
    if (event != json::parse_event_t::object_end || depth != kElementDepth) return true;
    if (section_ == "images") AddImage(value);
    if (section_ == "annotations") AddAnnotation(value);
    if (section_ == "categories" && value.at("name") == kPerson) person_ = value.at("id");
    return false;
  }

  void AddImage(const json& value) {
    images_.push_back(
        {.id = value.at("id"),
         .file = value.at("file_name"),
         .pixels = value.at("height").get<double>() * value.at("width").get<double>()});
  }

  void AddAnnotation(const json& value) {
    annotations_.push_back({.image = value.at("image_id"),
                            .category = value.at("category_id"),
                            .area = value.at("area")});
  }

  void Label() {
    std::map<int64_t, CocoImage*> by_id;
    for (CocoImage& image : images_) by_id[image.id] = &image;
    for (const Annotation& a : annotations_) {
      const auto found = by_id.find(a.image);
      if (a.category != person_ || found == by_id.end()) continue;
      if (a.area > kMinArea * found->second->pixels) found->second->label = 1;
    }
  }

  const fs::path path_;
  std::string section_;  // the key of the list that is being read
  std::vector<CocoImage> images_;
  std::vector<Annotation> annotations_;
  int64_t person_ = -1;  // number of the category
};

std::string Example(const CheckedImage& image, const CocoImage& coco) {
  ExampleBuilder example;
  example.Add("image/height", int64_t{image.height});
  example.Add("image/width", int64_t{image.width});
  example.Add("image/filename", coco.file);
  example.Add("image/source_id", std::to_string(coco.id));
  example.Add("image/format", "jpeg");
  example.Add("image/class/label", coco.label);
  example.Add("image/class/text", coco.label == 1 ? kPerson : "background");
  example.Add("image/encoded", image.bytes);
  return example.Finish();
}

// TF-Slim deals the images out to the shards like cards. Returns the order in which they are
// written.
std::vector<size_t> DealOut(size_t count, int num_shards, std::vector<int64_t>& starts) {
  std::vector<size_t> order;
  starts = {0};
  for (int shard = 0; shard < num_shards; ++shard) {
    for (auto i = static_cast<size_t>(shard); i < count; i += static_cast<size_t>(num_shards))
      order.push_back(i);
    starts.push_back(std::ssize(order));
  }
  return order;
}

// The names of COCO's folders and files for a split: those of 2014, or of 2017.
struct CocoSplit {
  fs::path annotations, images;
};

std::optional<CocoSplit> FindSplit(const fs::path& raw_dir, std::string_view split) {
  for (const char* year : {"2014", "2017"}) {
    CocoSplit found{raw_dir / "annotations" / fmt::format("instances_{}{}.json", split, year),
                    raw_dir / fmt::format("{}{}", split, year)};
    if (fs::exists(found.annotations) && fs::is_directory(found.images)) return found;
  }
  return std::nullopt;
}

BuiltSplit BuildSplit(const BuildOptions& options, std::string_view split, const CocoSplit& source,
                      int num_shards) {
  const std::vector<CocoImage> images = CocoReader(source.annotations).Read();
  const int64_t count = NumToBuild(options, std::ssize(images));
  num_shards = static_cast<int>(std::min<int64_t>(num_shards, count));
  uint64_t hash = kFnvOffset;
  for (const CocoImage& image : images)
    hash = Fnv1a64(fmt::format("{} {} {}\n", image.id, image.file, image.label), hash);
  ShardPlan plan{
      .folder = options.output_dir,
      .stem = fmt::format("{}.record-", split),
      .build_description =
          fmt::format("visualwakewords {}: first {} of {} images {:016x}, {} shards", split, count,
                      images.size(), hash, num_shards),
      .max_bad = options.max_bad_records,
      .threads = options.threads,
      .progress = [&](int64_t done, int64_t total) { options.Report(split, done, total); }};
  const std::vector<size_t> order = DealOut(static_cast<size_t>(count), num_shards, plan.starts);
  const auto image_at = [&](int64_t i) -> const CocoImage& {
    return images[order[static_cast<size_t>(i)]];
  };
  const auto left_out = WriteShards(plan, [&](int64_t i) {
    const fs::path path = source.images / image_at(i).file;
    return Example(CheckImage(ReadAll(*OpenFile(path), kMaxImageFileBytes), {.only_jpeg = true},
                              path.string()),
                   image_at(i));
  });
  return CountClasses(split, count, left_out, [&](int64_t i) { return image_at(i).label; });
}

}  // namespace

std::vector<BuiltSplit> BuildVisualWakeWords(const BuildOptions& options) {
  constexpr int kTrainShards = 100, kValidationShards = 10;  // as in TF-Slim
  std::vector<BuiltSplit> built;
  for (const auto& [split, shards] :
       {std::pair("train", options.train_shards.value_or(kTrainShards)),
        std::pair("val", options.validation_shards.value_or(kValidationShards))}) {
    if (const auto source = FindSplit(options.raw_dir, split))
      built.push_back(BuildSplit(options, split, *source, shards));
  }
  if (built.empty()) {
    throw DataError(
        fmt::format("[io.build] {} {}: is not COCO: want annotations/instances_train2014.json "
                    "with train2014/*.jpg, and the same for val2014 or 2017",
                    Option("raw_dir"), options.raw_dir.string()));
  }
  WriteLabels(options);
  return built;
}

}  // namespace carole::io
