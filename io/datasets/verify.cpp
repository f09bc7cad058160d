#include "io/datasets/verify.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "io/image/image.h"
#include "io/records/shard_name.h"
#include "io/records/tfrecord.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/crc32c.h"
#include "src/core/files/disk.h"
#include "src/core/files/run_lock.h"
#include "src/core/hash.h"
#include "src/core/parallel.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxMessagesPerShard = 1000;

// Equal records have equal fingerprints: length, checksum and hash of their bytes.
struct Fingerprint {
  uint64_t hash = 0;
  uint32_t crc = 0;
  uint64_t length = 0;
  auto Key() const { return std::tie(hash, crc, length); }
};

struct CheckedRecord {
  GoodRecord record;
  Fingerprint fingerprint;
  CheckedExample example;
};

struct BadRecord {
  int64_t index = 0;
  std::string text;
};

struct ShardReport {
  std::vector<CheckedRecord> good;
  std::vector<BadRecord> bad;  // at most kMaxMessagesPerShard
  int64_t num_bad = 0;

  void AddBad(int64_t index, std::string text) {
    ++num_bad;
    if (bad.size() < kMaxMessagesPerShard) bad.push_back({index, std::move(text)});
  }
};

// Reads and checks one shard from front to back.
class ShardChecker {
 public:
  ShardChecker(const VerifyOptions& options, const fs::path& shard,
               std::atomic<uint64_t>& done_bytes)
      : options_(options), source_(OpenRecords(shard)), done_bytes_(done_bytes) {}

  ShardReport Run() {
    while (Step()) ++index_;
    // Only a file of 0 bytes is bad: it may come from a failed copy.
    if (source_->size() == uint64_t{0})
      report_.AddBad(0, fmt::format("[io.tfrecord] {}: the file is empty; re-copy the shard, or "
                                    "train with {}, which takes it as a shard without records",
                                    source_->name(), Option("max_bad_records", "1")));
    return std::move(report_);
  }

 private:
  // Reads and checks one record. Returns false at the end of the shard.
  bool Step() {
    std::optional<std::string_view> record;
    try {
      record = ReadRecordAt(*source_, offset_, index_, buffer_);
    } catch (const DataError& error) {
      const std::string location = RecordLocation(source_->name(), index_, offset_);
      report_.AddBad(index_, WithLocation(location, error.what()));
      // Any other error comes from a damaged compressed stream, which cannot be read further.
      if (!std::string_view(error.what()).starts_with(location)) return false;
      const auto length = ValidLengthAt(offset_);
      return length ? Advance(offset_ + *length + kRecordFramingBytes) : SkipToNextRecord();
    }
    if (!record) return false;
    Check(*record);
    return Advance(offset_ + record->size() + kRecordFramingBytes);
  }

  void Check(std::string_view record) {
    try {
      const CheckedExample example =
          CheckExample(record, options_.dataset, options_.num_classes, &image_);
      report_.good.push_back(
          {.record = {.offset = offset_, .length = record.size(), .index = index_},
           .fingerprint = {Fnv1a64(record), MaskedCrc32c(record), record.size()},
           .example = example});
    } catch (const DataError& error) {
      report_.AddBad(index_,
                     WithLocation(RecordLocation(source_->name(), index_, offset_), error.what()));
    }
  }

  bool Advance(uint64_t offset) {
    if (source_->size()) done_bytes_ += offset - offset_;
    offset_ = offset;
    return true;
  }

  // Returns the length of the record at `offset` if its header is valid.
  std::optional<uint64_t> ValidLengthAt(uint64_t offset) const {
    std::array<char, kRecordHeaderBytes> header;
    try {
      const size_t got = source_->ReadAt(offset, header);
      return CheckRecordHeader({header.data(), got}, source_->name(), index_, offset,
                               source_->size());
    } catch (const DataError&) {
      return std::nullopt;
    }
  }

  // Continues after a damaged length: moves to the next valid header. Returns false if there is
  // none.
  bool SkipToNextRecord() {
    if (!source_->size()) return false;
    const uint64_t next = FindNextRecord(*source_, offset_ + 1);
    return next < *source_->size() && Advance(next);
  }

  const VerifyOptions& options_;
  std::unique_ptr<Source> source_;
  std::atomic<uint64_t>& done_bytes_;
  std::string buffer_;
  Image image_;
  uint64_t offset_ = 0;
  int64_t index_ = 0;
  ShardReport report_;
};

// Turns each record that has the same bytes as an earlier one into a bad record.
void FindDuplicates(const std::vector<fs::path>& names, std::vector<ShardReport>& shards) {
  struct Location {
    Fingerprint fingerprint;
    size_t shard;
    size_t record;
    auto Key() const { return std::tuple(fingerprint.Key(), shard, record); }
  };
  std::vector<Location> locations;
  for (size_t s = 0; s < shards.size(); ++s) {
    for (size_t r = 0; r < shards[s].good.size(); ++r)
      locations.push_back({shards[s].good[r].fingerprint, s, r});
  }
  std::sort(locations.begin(), locations.end(),
            [](const Location& a, const Location& b) { return a.Key() < b.Key(); });
  const Location* first = nullptr;  // of a group of equal records
  for (const Location& location : locations) {
    if (first == nullptr || first->fingerprint.Key() != location.fingerprint.Key()) {
      first = &location;
      continue;
    }
    const GoodRecord& original = shards[first->shard].good[first->record].record;
    GoodRecord& copy = shards[location.shard].good[location.record].record;
    shards[location.shard].AddBad(
        copy.index,
        fmt::format("{}duplicate: the same bytes as record {} at byte {} of {}",
                    RecordLocation(names[location.shard].string(), copy.index, copy.offset),
                    original.index, original.offset, names[first->shard].string()));
    copy.index = -1;
  }
  for (ShardReport& shard : shards)
    std::erase_if(shard.good, [](const CheckedRecord& record) { return record.record.index < 0; });
}

// Returns the file names of the shards' copies. Usually a copy has the name of its shard. But if
// some shards of a complete -of-N set have no good record, the set would have holes, so its copies
// are renumbered.
std::vector<std::string> CopyNames(const VerifyReport& report) {
  struct Set {
    int shards = 0, copies = 0, next = 0;
  };
  std::map<std::tuple<std::string, std::string, int>, Set> sets;
  const auto set_of = [&](const ShardName& name) -> Set& {
    return sets[{name.stem, name.suffix, name.count}];
  };
  for (size_t s = 0; s < report.shards.size(); ++s) {
    const auto name = ShardName::Parse(report.shards[s].filename().string());
    if (!name) continue;
    ++set_of(*name).shards;
    if (!report.good[s].empty()) ++set_of(*name).copies;
  }
  std::vector<std::string> names;
  for (size_t s = 0; s < report.shards.size(); ++s) {
    names.push_back(report.shards[s].filename().string());
    auto name = ShardName::Parse(names.back());
    if (!name || report.good[s].empty()) continue;
    Set& set = set_of(*name);
    if (set.shards != name->count || set.copies == set.shards) continue;
    name->number = set.next++;
    name->count = set.copies;
    names.back() = name->ToString();
  }
  return names;
}

VerifyReport MergeReports(const std::vector<fs::path>& names, std::vector<ShardReport>& shards) {
  VerifyReport report{.shards = names};
  for (ShardReport& shard : shards) {
    std::stable_sort(shard.bad.begin(), shard.bad.end(),
                     [](const BadRecord& a, const BadRecord& b) { return a.index < b.index; });
    for (BadRecord& bad : shard.bad) report.bad.push_back(std::move(bad.text));
    report.num_bad += shard.num_bad;
    report.num_good += static_cast<int64_t>(shard.good.size());
    std::vector<GoodRecord>& good = report.good.emplace_back();
    good.reserve(shard.good.size());
    for (const CheckedRecord& record : shard.good) {
      good.push_back(record.record);
      ++report.class_counts[record.example.label];
      report.num_turned += record.example.is_turned ? 1 : 0;
    }
  }
  return report;
}

// Throws UsageError if the folder holds copies of another repair: training would read them together
// with ours.
void CheckNoOtherSet(const fs::path& folder, const std::vector<std::string>& copies) {
  std::map<std::string, std::set<int>> counts;  // stem -> shard counts of the copies' sets
  for (const std::string& copy : copies) {
    if (const auto ours = ShardName::Parse(copy)) counts[ours->stem].insert(ours->count);
  }
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    const auto shard = ShardName::Parse(name);
    const auto ours = shard ? counts.find(shard->stem) : counts.end();
    if (ours == counts.end() || ours->second.contains(shard->count)) continue;
    throw UsageError(fmt::format(
        "[io.verify] {} {}: holds {} of another set: want a folder without such shards; "
        "remove them or choose another folder",
        Option("repair"), folder.string(), name));
  }
}

}  // namespace

VerifyReport VerifyShards(const VerifyOptions& options) {
  uint64_t total_bytes = 0;
  for (const fs::path& shard : options.shards) {
    std::error_code missing;  // the error is reported when the shard is opened
    const uint64_t bytes = fs::file_size(shard, missing);
    if (!missing) total_bytes += bytes;
  }
  std::atomic<uint64_t> done_bytes = 0;
  std::vector<ShardReport> shards(options.shards.size());
  ParallelFor(
      static_cast<int64_t>(shards.size()), options.threads,
      [&](int64_t i) { shards[i] = ShardChecker(options, options.shards[i], done_bytes).Run(); },
      [&] {
        if (options.progress)
          options.progress(std::min<uint64_t>(done_bytes, total_bytes), total_bytes);
      });
  FindDuplicates(options.shards, shards);
  return MergeReports(options.shards, shards);
}

void PrepareRepair(const std::vector<fs::path>& shards, const fs::path& folder) {
  MakeFolder("io.verify", folder.string());
  if (access(folder.c_str(), W_OK) != 0)
    ThrowDiskError("io.verify", folder.string(), "write", errno);
  std::set<fs::path> names;
  for (const fs::path& shard : shards) {
    if (!names.insert(shard.filename()).second) {
      throw UsageError(fmt::format(
          "[io.verify] {} {}: two shards have the name {}, so one copy would overwrite the other; "
          "repair them one at a time",
          Option("repair"), folder.string(), shard.filename().string()));
    }
    std::error_code missing;  // the error is reported when the shard is opened
    if (!fs::equivalent(folder, fs::absolute(shard).parent_path(), missing)) continue;
    throw UsageError(fmt::format(
        "[io.verify] {} {}: this is the folder of the damaged records; choose another folder",
        Option("repair"), folder.string()));
  }
}

void WriteRepaired(const VerifyReport& report, const fs::path& folder, int threads) {
  PrepareRepair(report.shards, folder);
  const std::vector<std::string> names = CopyNames(report);
  const RunLock lock(folder.string());
  CheckNoOtherSet(folder, names);
  std::set<std::string> stems;
  for (const std::string& name : names) {
    const auto shard = ShardName::Parse(name);
    stems.insert(shard ? shard->stem : name);
  }
  for (const std::string& stem : stems) RemoveTemporaryFiles(folder, stem);
  ParallelFor(static_cast<int64_t>(report.shards.size()), threads, [&](int64_t i) {
    const std::vector<GoodRecord>& good = report.good[i];
    if (good.empty()) return;
    const std::unique_ptr<Source> source = OpenRecords(report.shards[i]);
    const std::unique_ptr<Sink> sink = CreateFile(folder / names[i]);
    TfRecordWriter writer(*sink);
    std::string buffer;
    for (const GoodRecord& record : good) {
      const auto data = ReadRecordAt(*source, record.offset, record.index, buffer, record.length);
      writer.Write(data.value());
    }
    sink->Commit();
  });
  for (const fs::path& shard : report.shards) {
    const fs::path labels = shard.parent_path() / "labels.txt";
    if (!fs::exists(labels)) continue;
    CopyFile(labels, folder / "labels.txt");
    break;
  }
}

}  // namespace carole::io
