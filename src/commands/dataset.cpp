// carole dataset build | verify | show.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "io/datasets.h"
#include "io/example.h"
#include "io/image.h"
#include "io/record_index.h"
#include "io/tfrecord.h"
#include "src/commands/command_line.h"
#include "src/commands/commands.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

// One line for each split, rewritten on a terminal.
void PrintProgress(std::string_view split, int64_t done, int64_t total) {
  if (done < total && isatty(STDOUT_FILENO) == 0) return;
  fmt::print("{}{}: {} of {} images{}", isatty(STDOUT_FILENO) != 0 ? "\r" : "", split, done, total,
             done == total ? "\n" : "");
  std::fflush(stdout);
}

// The files named by the user: shards, or all shards of a dataset's split in a folder.
struct ShardFlags {
  std::vector<std::string> files;
  std::string dataset_name;
  std::string dataset_split_name = "train";
  std::string dataset_dir;

  void AddTo(CommandLine& line) {
    line.AddPositional("FILES", files, "TFRecord files; or give --dataset_name and --dataset_dir");
    line.Group("Data");
    line.Add("dataset_name", dataset_name, "whose shards");
    line.Add("dataset_split_name", dataset_split_name, "of which split");
    line.Add("dataset_dir,data_dir", dataset_dir, "folder of the shards");
  }

  std::vector<fs::path> Find() const {
    if (!files.empty()) return {files.begin(), files.end()};
    if (dataset_name.empty() || dataset_dir.empty())
      throw UsageError(
          "[flags] nothing to read: name TFRecord files, or --dataset_name and --dataset_dir");
    return io::FindShards(io::FindDataset(dataset_name), dataset_split_name, dataset_dir);
  }
};

std::string Preview(std::string_view bytes) {
  const bool is_text =
      bytes.size() <= 64 &&
      std::all_of(bytes.begin(), bytes.end(), [](unsigned char c) { return c >= ' ' && c < 127; });
  if (is_text) return fmt::format("\"{}\"", bytes);
  if (!io::IsJpeg(bytes) && !io::IsPng(bytes)) return fmt::format("{} bytes", bytes.size());
  io::Image image;
  io::DecodeImage(bytes, 3, &image);
  return fmt::format("{} of {} bytes, {}x{}", io::IsJpeg(bytes) ? "JPEG" : "PNG", bytes.size(),
                     image.width, image.height);
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

// The values when the feature holds a list of this kind: readers refuse the other two kinds.
template <typename T>
std::optional<std::vector<T>> TryRead(std::vector<T> (*read)(const io::FeatureQuery&),
                                      const io::FeatureQuery& query) {
  try {
    return read(query);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::string DescribeFeature(const io::FeatureQuery& query) {
  if (const auto values = TryRead(io::AllBytes, query)) return DescribeValues("bytes", *values);
  if (const auto values = TryRead(io::AllInt64, query)) return DescribeValues("int64", *values);
  return DescribeValues("float", io::AllFloats(query));
}

// Decodes what training would read; throws DataError with the record's place in front.
void CheckExample(std::string_view record, const io::DatasetEntry* dataset, io::Image& image) {
  io::FeatureQuery queries[] = {{"image/encoded"}, {"image/class/label"}};
  io::FindFeatures(record, queries);
  const auto bytes = io::FirstBytes(queries[0]);
  const auto label = io::FirstInt64(queries[1]);
  if (!bytes) throw DataError("[io.example] image/encoded: missing");
  if (!label) throw DataError("[io.example] image/class/label: missing");
  if (dataset != nullptr && (*label < dataset->label_of_first || *label >= dataset->num_classes)) {
    throw DataError(
        fmt::format("[io.example] image/class/label: out of range: got {}, want {} to {}", *label,
                    dataset->label_of_first, dataset->num_classes - 1));
  }
  io::DecodeImage(*bytes, dataset != nullptr ? dataset->channels : 3, &image);
}

// Returns the number of records.
int64_t VerifyShard(const fs::path& shard, const io::DatasetEntry* dataset) {
  const std::unique_ptr<io::Source> source = io::OpenRecords(shard);
  io::TfRecordReader reader(*source);
  io::Image image;
  int64_t records = 0;
  for (; const auto record = reader.Next(); ++records) {
    try {
      CheckExample(*record, dataset, image);
    } catch (const DataError& error) {
      throw DataError(io::RecordPlace(shard.string(), reader.index(), reader.offset()) +
                      error.what());
    }
  }
  return records;
}

}  // namespace

int DatasetBuild(const Arguments& arguments) {
  std::string name = "fashion_mnist";
  std::string raw_dir;
  std::string dataset_dir;
  int64_t max_images = 0;
  CommandLine line("carole dataset build",
                   "Writes TFRecords and labels.txt from a data set's raw files.");
  line.Group("Data");
  line.Add("dataset_name", name, "mnist, fashion_mnist or cifar10");
  line.Add("raw_dir", raw_dir, "folder of the raw files as they are distributed")->required();
  line.Add("dataset_dir,data_dir", dataset_dir, "where the TFRecords go; made when missing")
      ->required();
  line.Add("max_images", max_images, "of each split, for a first try; 0: all");
  if (!line.Parse(arguments)) return 0;
  const io::DatasetEntry& dataset = io::FindDataset(name);
  if (dataset.build == nullptr)
    throw UsageError(
        fmt::format("[flags] --dataset_name: {} cannot be built from raw files yet", name));
  dataset.build({.dataset = &dataset,
                 .raw_dir = raw_dir,
                 .output_dir = dataset_dir,
                 .max_images = max_images,
                 .progress = PrintProgress});
  return 0;
}

int DatasetVerify(const Arguments& arguments) {
  ShardFlags flags;
  CommandLine line("carole dataset verify",
                   "Checks framing, CRCs, fields, labels and images of every record; damage ends "
                   "with exit code 65.");
  flags.AddTo(line);
  if (!line.Parse(arguments)) return 0;
  const io::DatasetEntry* dataset =
      flags.dataset_name.empty() ? nullptr : &io::FindDataset(flags.dataset_name);
  int64_t total = 0;
  for (const fs::path& shard : flags.Find()) {
    const int64_t records = VerifyShard(shard, dataset);
    fmt::print("{}: {} records, all good\n", shard.string(), records);
    total += records;
  }
  fmt::print("{} records\n", total);
  return 0;
}

int DatasetShow(const Arguments& arguments) {
  ShardFlags flags;
  int64_t record = 0;
  CommandLine line("carole dataset show", "Prints the fields of one record.");
  flags.AddTo(line);
  line.Add("record", record, "which, counted from 0 over all shards")
      ->check(CLI::NonNegativeNumber);
  if (!line.Parse(arguments)) return 0;
  const io::RecordIndex index = io::LoadRecordIndex({.shards = flags.Find()});
  if (record >= index.num_records())
    throw UsageError(
        fmt::format("[flags] --record: got {}, want 0 to {}", record, index.num_records() - 1));
  const io::RecordIndex::Entry entry = index.Find(record);
  const fs::path shard = index.shards()[entry.shard].path;
  const std::unique_ptr<io::Source> source = io::OpenSeekableRecords(shard);
  std::string buffer;
  const auto data = io::ReadRecordAt(*source, entry.offset, entry.index, buffer, entry.length);
  fmt::print("{}: record {} at byte {}, {} bytes\n", shard.string(), entry.index, entry.offset,
             entry.length);
  for (const io::FeatureQuery& feature : io::ListFeatures(data.value()))
    fmt::print("  {:<24} {}\n", feature.key, DescribeFeature(feature));
  return 0;
}

}  // namespace carole::commands
