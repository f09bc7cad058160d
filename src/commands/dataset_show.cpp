// carole dataset show: prints the fields of one record, and writes its image if asked.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "io/datasets/datasets.h"
#include "io/image/image.h"
#include "io/records/boxes.h"
#include "io/records/example.h"
#include "io/records/raw_pixels.h"
#include "io/records/record_index.h"
#include "io/records/tfrecord.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/flags/shard_flags.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

// Whether all bytes are printable ASCII, which cannot move a terminal's cursor.
bool IsText(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](unsigned char c) { return c >= ' ' && c < 127; });
}

std::string Preview(std::string_view bytes) {
  if (bytes.size() <= 64 && IsText(bytes)) return fmt::format("\"{}\"", bytes);
  if (!io::IsJpeg(bytes) && !io::IsPng(bytes)) return fmt::format("{} bytes", bytes.size());
  const char* kind = io::IsJpeg(bytes) ? "JPEG" : "PNG";
  try {
    io::Image image;
    io::DecodeImage(bytes, 3, &image);
    return fmt::format("{} of {} bytes, {}x{}", kind, bytes.size(), image.width, image.height);
  } catch (const DataError& error) {  // users may look at a record because it is damaged
    return fmt::format("{} of {} bytes, damaged: {}", kind, bytes.size(), WithoutTag(error.what()));
  }
}

template <typename T>
std::string DescribeValues(std::string_view kind, const std::vector<T>& values) {
  std::string text = fmt::format("{:<5}", kind);
  for (const T& value : values) {
    if constexpr (std::is_same_v<T, std::string_view>) {
      text += " " + Preview(value);
    } else {
      text += fmt::format(" {}", value);
    }
  }
  return text;
}

// Returns the values if the feature holds a list of this type. The three readers refuse lists of
// other types.
template <typename T>
std::optional<std::vector<T>> TryRead(std::vector<T> (*read)(const io::FeatureQuery&),
                                      const io::FeatureQuery& query) {
  try {
    return read(query);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::string DescribeFeature(const io::FeatureQuery& query,
                            const std::vector<std::string>& class_names) {
  if (const auto values = TryRead(io::AllBytes, query)) return DescribeValues("bytes", *values);
  if (const auto values = TryRead(io::AllInt64, query)) {
    const bool is_label = query.key == "image/class/label" && values->size() == 1;
    const std::string name = is_label ? LabelName(class_names, values->front()) : "";
    return DescribeValues("int64", *values) + (name.empty() ? "" : "  " + name);
  }
  return DescribeValues("float", io::AllFloats(query));
}

// Draws the outline of a box, two pixels thick.
void DrawOutline(const io::Box& box, io::Image& image) {
  const auto to_pixel = [](float part, int extent) {
    return static_cast<int>(std::lround(part * static_cast<float>(extent - 1)));
  };
  constexpr uint8_t kGreen[] = {0, 255, 0};
  const int left = to_pixel(box.xmin, image.width);
  const int top = to_pixel(box.ymin, image.height);
  const int right = to_pixel(box.xmax, image.width);
  const int bottom = to_pixel(box.ymax, image.height);
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) {
      if (std::min({x - left, right - x, y - top, bottom - y}) >= 2) continue;
      std::copy(kGreen, kGreen + 3,
                image.pixels.begin() + (static_cast<ptrdiff_t>(y) * image.width + x) * 3);
    }
  }
}

// Draws the record's boxes. If they do not fit the image, it warns and draws none, since the image
// is useful without them.
void DrawBoxes(std::string_view record, io::Image& image) {
  try {
    for (const io::Box& box : io::ReadBoxes(record)) DrawOutline(box, image);
  } catch (const DataError& error) {
    LogWarning("dataset.show", "no boxes are drawn: {}", WithoutTag(error.what()));
  }
}

// Decodes the record's image, in color so that boxes can be drawn.
io::Image ReadImage(std::string_view record, const io::DatasetEntry* dataset) {
  std::array<io::FeatureQuery, 4> found = {
      {{"image/encoded"}, {"image/format"}, {"image/height"}, {"image/width"}}};
  io::FindFeatures(record, found);
  const io::StoredImage stored = io::ReadStoredImage(found);
  io::Image image;
  const int channels = dataset != nullptr ? dataset->channels : 3;
  const auto raw_pixels = io::FindRawPixels(stored, io::RawPixelsOf(dataset), channels);
  if (!raw_pixels) {
    io::DecodeImage(stored.encoded, 3, &image);
    return image;
  }
  image = {.height = raw_pixels->height, .width = raw_pixels->width, .channels = 3};
  const int copies = 3 / channels;  // gray is copied to three channels
  for (int64_t i = 0; i < int64_t{image.height} * image.width * channels; ++i)
    image.pixels.insert(image.pixels.end(), static_cast<size_t>(copies), raw_pixels->pixels[i]);
  return image;
}

// Writes the record's image with its boxes, as PNG, which does not change pixels.
void WriteImage(std::string_view record, const io::DatasetEntry* dataset, const std::string& path) {
  io::Image image = ReadImage(record, dataset);
  DrawBoxes(record, image);
  WriteWholeFile(path, io::EncodePng(image.view()));
  fmt::print("  image, {}x{}, written to {}\n", image.width, image.height, path);
}

}  // namespace

int DatasetShow(const Arguments& arguments) {
  ShardFlags flags;
  int64_t record = 0;
  std::string image_path;
  CommandLine line("carole dataset show",
                   "Prints the fields of one record and writes its image if asked.",
                   {"carole dataset show --dataset_name=imagenet --dataset_dir=DATA --record=7",
                    "carole dataset show --picture=image.png DATA/train-00000-of-01024"});
  flags.AddTo(line);
  line.AddNonNegative("record", record, "Index of the record, counted from 0 over all shards.",
                      HelpLevel::kBasic);
  line.AddPath("picture", image_path, "Write the image with its boxes to this PNG file.",
               HelpLevel::kBasic);
  if (!line.Parse(arguments)) return 0;
  const io::RecordIndex index = io::LoadRecordIndex({.shards = flags.Find(), .skip_damage = true});
  if (record >= index.num_records())
    throw UsageError(
        fmt::format("[flags] --record: got {}, want 0 to {}", record, index.num_records() - 1));
  const io::RecordIndex::Entry entry = index.Find(record);
  const fs::path shard = index.shards()[entry.shard].path;
  const auto source = io::OpenSeekableRecords(shard, index.shards()[entry.shard].damaged);
  std::string buffer;
  const auto data = io::ReadRecordAt(*source, entry.offset, entry.index, buffer, entry.length);
  if (!data)
    throw DataError(
        fmt::format("[dataset] {}: the shard was truncated while it was read", shard.string()));
  fmt::print("{}: record {} at byte {}, {} bytes\n", shard.string(), entry.index, entry.offset,
             entry.length);
  const std::vector<std::string> class_names = flags.ClassNames();
  for (const io::FeatureQuery& feature : io::ListFeatures(*data)) {
    const std::string key =
        IsText(feature.key) ? std::string(feature.key) : fmt::format("{:?}", feature.key);
    fmt::print("  {:<24} {}\n", key, DescribeFeature(feature, class_names));
  }
  if (!image_path.empty()) WriteImage(*data, flags.Dataset(), image_path);
  return 0;
}

}  // namespace carole::commands
