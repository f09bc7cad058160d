#include "io/records/record_index.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>

#include "io/records/tfrecord.h"
#include "src/core/check.h"
#include "src/core/files/crc32c.h"
#include "src/core/files/disk.h"
#include "src/core/hash.h"
#include "src/core/log.h"
#include "src/core/parallel.h"

namespace carole::io {
namespace {

constexpr std::string_view kMagic = "CAROLEI1";

ShardIndex StatShard(const std::filesystem::path& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) ThrowDiskError("io.index", path.string(), "find", errno);
  return {.path = path.string(),
          .file_bytes = static_cast<uint64_t>(info.st_size),
          .modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::string FileName(const ShardIndex& shard) {
  return std::filesystem::path(shard.path).filename().string();
}

// What identifies a shard within an index: everything but its offsets.
void AppendIdentity(std::string& out, const ShardIndex& shard) {
  const std::string name = FileName(shard);
  AppendLittle(out, static_cast<uint32_t>(name.size()));
  out += name;
  AppendLittle(out, shard.file_bytes);
  AppendLittle(out, shard.modified_ns);
}

std::string CacheName(const std::vector<ShardIndex>& shards) {
  uint64_t hash = kFnvOffset;
  for (const ShardIndex& shard : shards) {
    std::error_code error;  // one index, whatever way the folder is called
    const std::string path = std::filesystem::weakly_canonical(shard.path, error);
    hash = Fnv1a64(error ? shard.path : path, hash);
  }
  return fmt::format(".carole_index_{:016x}", hash);
}

void ScanAll(std::vector<ShardIndex>& shards, int threads, bool skip_damage) {
  ParallelFor(static_cast<int64_t>(shards.size()), threads, [&](int64_t i) {
    ShardIndex& shard = shards[static_cast<size_t>(i)];
    shard.offsets = ScanRecords(*OpenSeekableRecords(shard.path, skip_damage),
                                skip_damage ? &shard.damaged : nullptr);
  });
}

bool ReadCache(const std::filesystem::path& path, std::vector<ShardIndex>& shards) {
  constexpr uint64_t kMaxIndexBytes = uint64_t{16} << 30;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  try {
    return ParseIndex(ReadAll(*OpenFile(path), kMaxIndexBytes), shards);
  } catch (const Error& e) {
    LogWarning("io.index", "index cache not used: {}", WithoutTag(e.what()));
    return false;
  }
}

// Says in `problem` why it cannot.
bool WriteCache(const std::filesystem::path& path, const std::string& bytes, std::string& problem) {
  try {
    WriteWholeFile(path, bytes);
    return true;
  } catch (const DiskError& error) {
    problem = WithoutTag(error.what());
    return false;
  }
}

// The bytes of a cache file, as ParseIndex() reads them.
std::string SerializeIndex(const std::vector<ShardIndex>& shards) {
  std::string out(kMagic);
  AppendLittle(out, static_cast<uint64_t>(shards.size()));
  for (const ShardIndex& shard : shards) {
    AppendIdentity(out, shard);
    AppendLittle(out, static_cast<uint64_t>(shard.offsets.size()));
    out.append(reinterpret_cast<const char*>(shard.offsets.data()),
               shard.offsets.size() * sizeof(uint64_t));
  }
  AppendLittle(out, MaskedCrc32c(out));
  return out;
}

// Of shards beside which no file can be written, by the file's name: as that file's bytes, for this
// process alone.
class KeptIndexes {
 public:
  bool Read(const std::string& name, std::vector<ShardIndex>& shards) {
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find(name);
    return found != bytes_.end() && ParseIndex(found->second, shards);
  }
  void Keep(const std::string& name, std::string bytes) {
    const std::lock_guard lock(mutex_);
    bytes_[name] = std::move(bytes);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> bytes_;
};

KeptIndexes& Kept() {
  static KeptIndexes kept;
  return kept;
}

}  // namespace

RecordIndex::RecordIndex(std::vector<ShardIndex> shards) : shards_(std::move(shards)) {
  for (ShardIndex& shard : shards_) {
    shard.first_record = num_records_;
    num_records_ += shard.num_records();
  }
}

RecordIndex::Entry RecordIndex::Find(int64_t record) const {
  CAROLE_CHECK(record >= 0 && record < num_records_, "record {} of {}", record, num_records_);
  const auto after = std::upper_bound(
      shards_.begin(), shards_.end(), record,
      [](int64_t number, const ShardIndex& shard) { return number < shard.first_record; });
  const ShardIndex& shard = *(after - 1);
  const int64_t index = record - shard.first_record;
  const uint64_t offset = shard.offsets[index];
  return {.shard = static_cast<int>(after - 1 - shards_.begin()),
          .index = index,
          .offset = offset,
          .length = std::max(shard.offsets[index + 1] - offset, kRecordFramingBytes) -
                    kRecordFramingBytes};
}

std::vector<uint64_t> ScanRecords(const Source& source, bool* damaged) {
  constexpr size_t kWindowBytes =
      4096;  // small records: several headers a read; large ones: little waste
  CAROLE_CHECK(source.size().has_value(), "{}: scanning needs a size", source.name());
  const uint64_t end = *source.size();
  std::string window(kWindowBytes, '\0');
  uint64_t window_start = 0;
  size_t window_size = 0;
  std::vector<uint64_t> offsets;
  uint64_t offset = 0;
  while (offset < end) {
    if (offset + kRecordHeaderBytes > window_start + window_size) {
      window_start = offset;
      window_size = source.ReadAt(offset, window);
    }
    const std::string_view header = std::string_view(window)
                                        .substr(0, window_size)
                                        .substr(offset - window_start, kRecordHeaderBytes);
    const auto index = static_cast<int64_t>(offsets.size());
    offsets.push_back(offset);
    try {
      offset += CheckRecordHeader(header, source.name(), index, offset, end) + kRecordFramingBytes;
    } catch (const DataError&) {
      if (damaged == nullptr) throw;
      *damaged = true;
      offset = FindNextRecord(source, offset + 1);
    }
  }
  if (offsets.empty()) {
    if (damaged == nullptr) FailEmptyShard(source.name());
    *damaged = true;
    offsets.push_back(0);  // a record that is not there, to be counted
  }
  offsets.push_back(end);
  return offsets;
}

bool ParseIndex(std::string_view bytes, std::vector<ShardIndex>& shards) {
  if (bytes.size() < kMagic.size() + 12 || !bytes.starts_with(kMagic)) return false;
  const std::string_view body = bytes.substr(0, bytes.size() - 4);
  if (MaskedCrc32c(body) != LoadLittle<uint32_t>(bytes.data() + body.size())) return false;
  std::string_view rest = body.substr(kMagic.size());
  const auto take_number = [&rest](uint64_t& number) {
    if (rest.size() < sizeof(number)) return false;
    number = LoadLittle<uint64_t>(rest.data());
    rest.remove_prefix(sizeof(number));
    return true;
  };
  uint64_t count = 0;
  if (!take_number(count) || count != shards.size()) return false;
  for (ShardIndex& shard : shards) {
    std::string identity;
    AppendIdentity(identity, shard);
    if (!rest.starts_with(identity)) return false;
    rest.remove_prefix(identity.size());
    if (!take_number(count) || count < 2 || count > rest.size() / sizeof(uint64_t)) return false;
    shard.offsets.resize(count);
    std::memcpy(shard.offsets.data(), rest.data(), count * sizeof(uint64_t));
    rest.remove_prefix(count * sizeof(uint64_t));
  }
  return rest.empty();
}

RecordIndex LoadRecordIndex(const RecordIndexOptions& options) {
  CAROLE_CHECK(!options.shards.empty(), "an index of no shards");
  std::vector<ShardIndex> shards;
  for (const std::filesystem::path& path : options.shards) shards.push_back(StatShard(path));

  const std::string name = CacheName(shards);
  std::vector<std::filesystem::path> caches = {options.shards[0].parent_path() / name};
  if (!options.work_dir.empty()) caches.push_back(options.work_dir / name);
  for (const auto& cache : caches) {
    if (ReadCache(cache, shards)) return RecordIndex(std::move(shards));
  }
  if (Kept().Read(name, shards)) return RecordIndex(std::move(shards));
  ScanAll(shards, options.threads, options.skip_damage);
  const auto is_damaged = [](const ShardIndex& shard) { return shard.damaged; };
  if (std::any_of(shards.begin(), shards.end(), is_damaged)) return RecordIndex(std::move(shards));
  std::string bytes = SerializeIndex(shards);
  std::string problem;
  const bool written = std::any_of(caches.begin(), caches.end(), [&](const auto& cache) {
    return WriteCache(cache, bytes, problem);
  });
  if (!written) {
    LogInfo("io.index",
            "{}; each start scans the shards again: name a folder that this user may write with "
            "--work_dir",
            problem);
    Kept().Keep(name, std::move(bytes));
  }
  return RecordIndex(std::move(shards));
}

}  // namespace carole::io
