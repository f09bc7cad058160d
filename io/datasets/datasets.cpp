#include "io/datasets/datasets.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>

#include "io/datasets/imagenet/imagenet_lists.h"
#include "io/records/shard_name.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/text/byte_order_mark.h"
#include "src/core/text/escape.h"
#include "src/core/text/join_names.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLabelsFile = "labels.txt";

// A folder or file that dataset_dir names.
struct NamedPath {
  fs::path path;
  bool is_match = false;  // of a glob pattern
};

// Returns what dataset_dir names; FindShards() describes its syntax.
std::vector<NamedPath> ExpandDatasetDir(const fs::path& dataset_dir) {
  std::error_code error;
  if (fs::exists(dataset_dir, error)) return {{dataset_dir}};
  const std::string names = dataset_dir.string();
  std::vector<NamedPath> paths;
  for (size_t start = 0; start <= names.size();) {
    const size_t end = std::min(names.find(',', start), names.size());
    const std::string name = names.substr(start, end - start);
    start = end + 1;
    if (name.empty()) continue;
    // GLOB_NOCHECK keeps a pattern that matches nothing, so that the error message can name it.
    glob_t found{};
    glob(name.c_str(), GLOB_NOCHECK, nullptr, &found);
    for (size_t i = 0; i < found.gl_pathc; ++i)
      paths.push_back({.path = found.gl_pathv[i], .is_match = name != found.gl_pathv[i]});
    globfree(&found);
  }
  return paths;
}

// Returns the path of labels.txt next to the records: the first one that exists, or else where it
// should be.
fs::path FindLabels(const fs::path& dataset_dir) {
  std::error_code error;
  fs::path first;
  for (const NamedPath& named : ExpandDatasetDir(dataset_dir)) {
    const fs::path folder =
        fs::is_regular_file(named.path, error) ? named.path.parent_path() : named.path;
    if (fs::exists(folder / kLabelsFile, error)) return folder / kLabelsFile;
    if (first.empty()) first = folder / kLabelsFile;
  }
  return first.empty() ? dataset_dir / kLabelsFile : first;
}

// Throws DataError if a name that looks like that of a file, or a pattern, names nothing.
void CheckNamedFilesExist(const fs::path& dataset_dir) {
  for (const NamedPath& named : ExpandDatasetDir(dataset_dir)) {
    std::error_code error;
    const std::string name = named.path.filename().string();
    const bool is_pattern = named.path.string().find_first_of("*?[{") != std::string::npos;
    if (fs::exists(named.path, error) ||
        (!is_pattern && !named.path.has_extension() && !ShardName::Parse(name)))
      continue;
    throw DataError(fmt::format("[io.datasets] {} {}: {}; correct the path", Option("dataset_dir"),
                                named.path.string(),
                                is_pattern ? "no file has such a name" : "no such file"));
  }
}

// Returns the split that a file name states by a pattern of the data set, or else by a word such as
// "train" or "val"; nullptr if it states none or two.
const SplitEntry* SplitOfFile(const DatasetEntry& dataset, std::string name) {
  for (const SplitEntry& split : dataset.splits) {
    if (MatchesSplit(split, name)) return &split;
  }
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return static_cast<char>(std::isalpha(c) != 0 ? std::tolower(c) : ' ');
  });
  const auto has_one_of = [text = " " + name + " "](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words, [&](std::string_view word) {
      return text.find(fmt::format(" {} ", word)) != std::string::npos;
    });
  };
  const bool is_train = has_one_of({"train", "training"});
  const bool is_other =
      has_one_of({"val", "valid", "validation", "eval", "dev", "test", "testing"});
  if (is_train == is_other) return nullptr;
  return &dataset.splits[is_train ? 0 : 1];
}

bool HasRecordsName(const std::string& name) {
  return ShardName::Parse(name) || name.find("record") != std::string::npos ||
         name.find("tfrec") != std::string::npos;
}

// Collects the shards of a split.
class ShardFinder {
 public:
  ShardFinder(const DatasetEntry& dataset, const SplitEntry& split)
      : dataset_(dataset), split_(split) {}

  void TakeFolder(const fs::directory_iterator& files) {
    for (const auto& file : files) {
      if (!MatchesSplit(split_, file.path().filename().string())) {
        LeaveOut(file.path());
      } else {
        Take(file.path());
      }
    }
  }

  // Takes a file that the user named, whatever its name is, unless it belongs to another split.
  void TakeNamed(const NamedPath& named) {
    const std::string name = named.path.filename().string();
    const SplitEntry* stated = SplitOfFile(dataset_, name);
    const bool is_other = (stated != nullptr && stated != &split_) || name == kLabelsFile ||
                          (named.is_match && stated == nullptr && !HasRecordsName(name));
    if (is_other) {
      LeaveOut(named.path);
    } else {
      Take(named.path);
    }
  }

  // Returns the shards, sorted by name. Throws DataError if there are none.
  std::vector<fs::path> Finish(const fs::path& dataset_dir) {
    if (shards_.empty()) {
      throw DataError(fmt::format("[io.datasets] {} {}: no file matches {}: got {}; {}",
                                  Option("dataset_dir"), dataset_dir.string(), split_.pattern,
                                  DescribeLeftOut(), Advice()));
    }
    // All ranks number the records in this order, so it must depend only on the names.
    std::ranges::sort(shards_, {}, [](const fs::path& p) { return std::pair(p.filename(), p); });
    return std::move(shards_);
  }

 private:
  void Take(const fs::path& path) {
    if (fs::is_regular_file(path) &&
        known_.insert(fs::canonical(fs::absolute(path).parent_path()) / path.filename()).second)
      shards_.push_back(path);
  }

  void LeaveOut(const fs::path& path) {
    const std::string name = path.filename().string();
    if (name.starts_with('.')) return;
    std::error_code error;
    const bool is_folder = fs::is_directory(path, error);
    (is_folder ? folders_ : HasRecordsName(name) ? records_ : others_).push_back(path);
  }

  std::string DescribeLeftOut() const {
    constexpr size_t kMaxNamed = 3;
    std::vector<std::string> names;
    for (const auto* paths : {&records_, &others_, &folders_}) {
      for (const fs::path& path : *paths)
        names.push_back(path.filename().string() + (paths == &folders_ ? "/" : ""));
      std::ranges::sort(names);
      if (!names.empty()) return JoinFirst(names, kMaxNamed);
    }
    return "no files";
  }

  std::string Advice() const {
    const SplitEntry* stated = nullptr;
    const fs::path* example = nullptr;
    for (const fs::path& path : records_) {
      const SplitEntry* split = SplitOfFile(dataset_, path.filename().string());
      if (example != nullptr && split != &split_) continue;
      example = &path;
      stated = split;
    }
    if (example == nullptr)
      return fmt::format("build the records first: carole dataset build {}",
                         Option("dataset_name", dataset_.name));
    if (stated != nullptr && stated != &split_)
      return fmt::format("these are files of the split {}", stated->name);
    const auto shard = ShardName::Parse(example->filename().string());
    const std::string pattern = shard ? shard->stem + "*" : example->filename().string();
    return fmt::format("to read files of other names, name them: {}",
                       Option("dataset_dir", (example->parent_path() / pattern).string()));
  }

  const DatasetEntry& dataset_;
  const SplitEntry& split_;
  std::vector<fs::path> shards_;
  std::set<fs::path> known_;                          // folders and patterns may overlap
  std::vector<fs::path> records_, others_, folders_;  // left out
};

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
  const std::string bytes = ReadAll(*OpenFile(path), kMaxLabelsBytes);
  const bool is_utf16 = bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff") ||
                        bytes.find('\0') != bytes.npos;
  if (is_utf16) {
    throw DataError(fmt::format(
        "[io.datasets] {}: wrong encoding: got UTF-16, want UTF-8; convert it: iconv -f UTF-16 -t "
        "UTF-8",
        path.string()));
  }
  const std::string_view text = WithoutByteOrderMark(bytes);
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

bool MatchesSplit(const SplitEntry& split, const std::string& name) {
  return fnmatch(std::string(split.pattern).c_str(), name.c_str(), FNM_PERIOD) == 0;
}

std::vector<fs::path> FindShards(const DatasetEntry& dataset, std::string_view split_name,
                                 const fs::path& dataset_dir) {
  const SplitEntry& split = FindSplit(dataset, split_name);
  if (dataset_dir.empty())
    throw UsageError({.tag = "io.datasets",
                      .option = "dataset_dir",
                      .problem = "missing",
                      .want = "a folder with TFRecords"});
  ShardFinder finder(dataset, split);
  for (const NamedPath& named : ExpandDatasetDir(dataset_dir)) {
    std::error_code error;
    const fs::directory_iterator files(named.path, error);
    if (!error) {
      finder.TakeFolder(files);
    } else if (error == std::errc::not_a_directory) {
      finder.TakeNamed(named);
    } else {
      const std::string text =
          fmt::format("[io.datasets] {} {}: cannot be read: {}", Option("dataset_dir"),
                      named.path.string(), error.message());
      if (error == std::errc::no_such_file_or_directory) throw DataError(text);
      throw DiskError(text);
    }
  }
  std::vector<fs::path> shards = finder.Finish(dataset_dir);
  // Files of other names may belong to several sets.
  std::map<std::string, std::vector<fs::path>> sets;
  for (const fs::path& path : shards) {
    const std::string name = path.filename().string();
    const auto shard = ShardName::Parse(name);
    if (shard) sets[MatchesSplit(split, name) ? "" : shard->stem].push_back(path);
  }
  for (const auto& [stem, set] : sets) CheckAllShards(set);
  return shards;
}

int NumLabels(const fs::path& dataset_dir) {
  const fs::path labels = FindLabels(dataset_dir);
  std::error_code error;
  int listed = 0;
  if (fs::exists(labels, error))
    ReadLabels(labels, [&](int index, std::string_view) { listed = std::max(listed, index + 1); });
  return listed;
}

int NumClasses(const DatasetEntry& dataset, const fs::path& dataset_dir) {
  if (dataset.num_classes > 0) return dataset.num_classes;
  constexpr int kMaxClasses = 1'000'000;
  const fs::path labels = FindLabels(dataset_dir);
  std::error_code error;
  if (!fs::exists(labels, error)) {
    if (error) ThrowDiskError("io.datasets", labels.string(), "open", error.value());
    CheckNamedFilesExist(dataset_dir);
    throw DataError(
        fmt::format("[io.datasets] {}: no such file: it lists the classes of {} in lines "
                    "INDEX:NAME; check {}, or build the records first: carole dataset build",
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
