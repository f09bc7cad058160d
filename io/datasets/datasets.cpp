#include "io/datasets/datasets.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "io/datasets/imagenet/imagenet_lists.h"
#include "io/records/shard_name.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/text/escape.h"
#include "src/core/text/join_names.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

// Returns the folders and shards that dataset_dir names; FindShards() describes its syntax.
std::vector<fs::path> ExpandDatasetDir(const fs::path& dataset_dir) {
  std::error_code error;
  if (fs::exists(dataset_dir, error)) return {dataset_dir};
  const std::string names = dataset_dir.string();
  glob_t found{};
  for (size_t start = 0; start <= names.size();) {
    const size_t end = std::min(names.find(',', start), names.size());
    const std::string name = names.substr(start, end - start);
    // GLOB_NOCHECK keeps a pattern that matches nothing, so that the error message can name it.
    if (!name.empty())
      glob(name.c_str(), GLOB_NOCHECK | (found.gl_pathc > 0 ? GLOB_APPEND : 0), nullptr, &found);
    start = end + 1;
  }
  std::vector<fs::path> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

// Returns the path of labels.txt next to the records: the first one that exists, or else where it
// should be.
fs::path FindLabels(const fs::path& dataset_dir) {
  std::error_code error;
  for (const fs::path& path : ExpandDatasetDir(dataset_dir)) {
    const fs::path folder = fs::is_regular_file(path, error) ? path.parent_path() : path;
    if (fs::exists(folder / "labels.txt", error)) return folder / "labels.txt";
  }
  return dataset_dir / "labels.txt";
}

// Lists the first few shards of [0, count) that are not in `numbers`.
std::string NameMissing(const std::set<int>& numbers, int count) {
  constexpr int kMaxNamed = 5;
  std::string missing;
  int named = 0;
  for (int i = 0; i < count && named <= kMaxNamed; ++i) {
    if (numbers.contains(i)) continue;
    if (named++ == kMaxNamed) return missing + ", ...";
    missing += fmt::format("{}{:05}-of-{:05}", missing.empty() ? "" : ", ", i, count);
  }
  return missing;
}

// Throws DataError unless each of the N shards of a `-of-N` set occurs exactly once.
void CheckAllShards(const std::vector<fs::path>& shards) {
  std::set<int> numbers;
  int count = 0;
  for (const auto& path : shards) {
    const auto shard = ShardName::Parse(path.filename().string());
    if (!shard) continue;
    if (count != 0 && shard->count != count) {
      throw DataError(
          fmt::format("[io.datasets] {}: shards of two sets: got -of-{:05} and -of-{:05}; "
                      "move one set elsewhere",
                      path.string(), count, shard->count));
    }
    count = shard->count;
    if (shard->number < 0 || shard->number >= count) {
      throw DataError(
          fmt::format("[io.datasets] {}: shard number out of range: got {}, want 0 to {}",
                      path.string(), shard->number, count - 1));
    }
    if (!numbers.insert(shard->number).second) {
      throw DataError(fmt::format(
          "[io.datasets] {}: duplicate shard {:05}-of-{:05}: its records would be seen twice; "
          "remove one",
          path.string(), shard->number, count));
    }
  }
  const int num_missing = count - static_cast<int>(numbers.size());
  if (num_missing == 0) return;
  throw DataError(fmt::format("[io.datasets] {}: {} of {} shards are missing: {}; copy them too",
                              shards[0].parent_path().string(), num_missing, count,
                              NameMissing(numbers, count)));
}

// Calls take(index, name) for each line INDEX:NAME, which is split at the first colon. Editors of
// Windows write a byte order mark before the text.
template <typename Take>
void ReadLabels(const fs::path& path, Take&& take) {
  constexpr uint64_t kMaxLabelsBytes = 16 << 20;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  const std::string bytes = ReadAll(*OpenFile(path), kMaxLabelsBytes);
  if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff")) {
    throw DataError(fmt::format(
        "[io.datasets] {}: wrong encoding: got UTF-16, want UTF-8; convert it: iconv -f UTF-16 -t "
        "UTF-8",
        path.string()));
  }
  std::string_view text = bytes;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  int number = 0;
  for (size_t start = 0; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, end - start);
    start = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    int index = 0;
    const auto [after, error] = std::from_chars(line.data(), line.data() + line.size(), index);
    if (error != std::errc() || index < 0 || after == line.data() + line.size() || *after != ':') {
      throw DataError(fmt::format("[io.datasets] {}: line {}: got '{}', want INDEX:NAME",
                                  path.string(), number + 1, Escape(line.substr(0, 80))));
    }
    take(index, std::string_view(after + 1, line.data() + line.size()));
  }
}

// Returns the class names that the program knows without labels.txt; may be empty.
std::vector<std::string> BuiltInClassNames(const DatasetEntry& dataset) {
  if (dataset.name == "imagenet") return ImagenetClassNames();
  return {dataset.class_names.begin(), dataset.class_names.end()};
}

}  // namespace

const DatasetEntry& FindDataset(std::string_view name) {
  for (const DatasetEntry& dataset : kDatasets) {
    if (dataset.name == name) return dataset;
  }
  throw UsageError({.tag = "io.datasets",
                    .option = "dataset_name",
                    .problem = "unknown dataset",
                    .got = fmt::format("'{}'", name),
                    .want = "one of " + JoinNames(kDatasets)});
}

const SplitEntry& FindSplit(const DatasetEntry& dataset, std::string_view split) {
  for (const SplitEntry& entry : dataset.splits) {
    if (entry.name == split) return entry;
  }
  throw UsageError(
      fmt::format("[io.datasets] {}, {}: {} has no such split: got '{}', want one of {}",
                  Option("dataset_split_name"), Option("eval_split_name"), dataset.name, split,
                  JoinNames(dataset.splits)));
}

std::vector<fs::path> FindShards(const DatasetEntry& dataset, std::string_view split,
                                 const fs::path& dataset_dir) {
  const std::string pattern(FindSplit(dataset, split).pattern);
  if (dataset_dir.empty())
    throw UsageError({.tag = "io.datasets",
                      .option = "dataset_dir",
                      .problem = "missing",
                      .want = "a folder with TFRecords"});
  std::vector<fs::path> shards;
  std::set<fs::path> known;  // folders and patterns may overlap
  const auto take = [&](const fs::path& path) {
    if (fnmatch(pattern.c_str(), path.filename().c_str(), FNM_PERIOD) == 0 &&
        fs::is_regular_file(path) &&
        known.insert(fs::canonical(fs::absolute(path).parent_path()) / path.filename()).second)
      shards.push_back(path);
  };
  for (const fs::path& path : ExpandDatasetDir(dataset_dir)) {
    std::error_code error;
    for (const auto& file : fs::directory_iterator(path, error)) take(file.path());
    if (error == std::errc::not_a_directory) {
      take(path);
    } else if (error) {
      const std::string text = fmt::format("[io.datasets] {} {}: cannot be read: {}",
                                           Option("dataset_dir"), path.string(), error.message());
      if (error == std::errc::no_such_file_or_directory) throw DataError(text);
      throw DiskError(text);
    }
  }
  if (shards.empty()) {
    throw DataError(
        fmt::format("[io.datasets] {} {}: no file matches {}; build the records first: carole "
                    "dataset build",
                    Option("dataset_dir"), dataset_dir.string(), pattern));
  }
  // All ranks number the records in this order, so it must depend only on the names.
  std::ranges::sort(shards, {}, [](const fs::path& p) { return std::pair(p.filename(), p); });
  CheckAllShards(shards);
  return shards;
}

int NumClasses(const DatasetEntry& dataset, const fs::path& dataset_dir) {
  if (dataset.num_classes > 0) return dataset.num_classes;
  constexpr int kMaxClasses = 1'000'000;
  const fs::path labels = FindLabels(dataset_dir);
  std::error_code error;
  if (!fs::exists(labels, error)) {
    if (error) ThrowDiskError("io.datasets", labels.string(), "open", error.value());
    throw DataError(
        fmt::format("[io.datasets] {}: no such file: it lists the classes of {}; check {}, or "
                    "build the records "
                    "first: carole dataset build",
                    labels.string(), dataset.name, Option("dataset_dir")));
  }
  int num_classes = 0;
  std::set<int> seen;
  ReadLabels(labels, [&](int index, std::string_view name) {
    num_classes = std::max(num_classes, std::min(index, kMaxClasses) + 1);
    if (seen.insert(index).second) return;
    throw DataError(fmt::format(
        "[io.datasets] {}: class {}: got two lines, the second with name '{}', want one",
        labels.string(), index, Escape(name.substr(0, 80))));
  });
  if (num_classes > 0 && num_classes <= kMaxClasses) return num_classes;
  throw DataError(fmt::format(
      "[io.datasets] {}: wrong number of classes of {}: got {}, want 1 to {} lines INDEX:NAME",
      labels.string(), dataset.name, num_classes, kMaxClasses));
}

std::vector<std::string> ClassNames(const DatasetEntry& dataset, const fs::path& dataset_dir) {
  const int num_classes = NumClasses(dataset, dataset_dir);
  std::vector<std::string> names = BuiltInClassNames(dataset);
  for (int i = static_cast<int>(names.size()); i < num_classes; ++i)
    names.push_back(std::to_string(i));
  if (const fs::path labels = FindLabels(dataset_dir); fs::exists(labels)) {
    ReadLabels(labels, [&](int index, std::string_view name) {
      if (index < num_classes) names[static_cast<size_t>(index)] = name;
    });
  }
  return names;
}

}  // namespace carole::io
