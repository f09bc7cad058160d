// The record index: how training reads record number k directly.
//
// The problem. Training reads records in shuffled order. A TFRecord file can only be read from
// front to back: record k begins where record k-1 ends. To read record 700,000 one would have to
// read 700,000 headers first. A shuffle buffer, as in tf.data, avoids that. But it mixes only
// nearby records, and its content is state that a checkpoint would have to store. So we read all
// headers once and remember every offset.
//
// The data. For each shard, `offsets` holds where each record begins, and where the last one ends.
// The lengths follow from the differences: a record has 16 bytes of framing. An offset takes 8
// bytes (1,281,167 records of ImageNet: 10 MB). Example with two shards:
//
//   shard a: records "first", "second"               offsets 0 21 43      first_record 0
//   shard b: records "third", "", "fifth record"     offsets 0 21 37 65   first_record 2
//
// Find(3): the last shard whose first_record is at most 3 is b. Index within the shard: 3 - 2 = 1.
// Offset: 21. Length of the data: 37 - 21 - 16 = 0.
//
// The phases of LoadRecordIndex():
//   1. stat() every shard: size and modification time.
//   2. Look for a cached index: in the folder of the first shard, in work_dir, then in the memory
//      of this process. The file's name contains a hash of the shards' canonical paths. So there is
//      one index, however the user spells the folder.
//   3. If none is valid, scan the shards in parallel; one thread scans a whole shard.
//   4. Write the cache file to the first of these folders that can be written. The write is atomic
//      (temporary name, then rename), so ranks that finish at the same time do no harm.
//
// When a cached index is valid. It lists name, size and modification time of every shard, and ends
// with a checksum of the whole file. If anything differs, it is ignored and replaced after a new
// scan. With a valid index the shards are not opened at all.
//
// The scan reads 4096 bytes at a time. With small records (MNIST) one read covers several headers;
// with large records (photos) little is read in vain. Only headers are verified here: length and
// its checksum. The data's checksum is verified when the record is read.
//
// Damage. A damaged length hides where the next record begins. Without skip_damage that is an
// error. With it, the scan searches for the next valid header, and the bytes up to there become one
// record. Reading it fails, so it is counted as one bad record (max_bad_records). Damaged data
// needs no special treatment, because the offsets remain valid. An index with damage is not cached.
//
// Empty shards. TensorFlow reads a file of 0 bytes as a shard without records. A failed copy
// may look the same, so such a file needs skip_damage. It is not a bad record: there is no record
// to skip. A whole compressed stream of 0 bytes cannot come from a failed copy, and is accepted.
//
// If neither folder can be written, the serialized index is kept in memory, and later loads in this
// process parse it. Thus a changed shard is detected there in the same way as in a file.
#include "io/records/record_index.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>

#include "io/records/tfrecord.h"
#include "src/core/check.h"
#include "src/core/error.h"
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

// Appends the part of an index that identifies a shard: everything but its offsets.
void AppendIdentity(std::string& out, const ShardIndex& shard) {
  const std::string name = FileName(shard);
  AppendLittleEndian(out, static_cast<uint32_t>(name.size()));
  out += name;
  AppendLittleEndian(out, shard.file_bytes);
  AppendLittleEndian(out, shard.modified_ns);
}

std::string CacheName(const std::vector<ShardIndex>& shards) {
  uint64_t hash = kFnvOffset;
  for (const ShardIndex& shard : shards) {
    std::error_code error;  // all spellings of the folder lead to the same index
    const std::string path = std::filesystem::weakly_canonical(shard.path, error);
    hash = Fnv1a64(error ? shard.path : path, hash);
  }
  return fmt::format(".carole_index_{:016x}", hash);
}

void ScanAll(std::vector<ShardIndex>& shards, int threads, bool skip_damage) {
  ParallelFor(static_cast<int64_t>(shards.size()), threads, [&](int64_t i) {
    ShardIndex& shard = shards[static_cast<size_t>(i)];
    if (shard.file_bytes == 0) {
      if (!skip_damage) ThrowEmptyShard(shard.path);
      shard.damaged = true;
    }
    shard.offsets = ScanRecords(*OpenSeekableRecords(shard.path, skip_damage),
                                skip_damage ? &shard.damaged : nullptr);
  });
}

void NoteEmptyFiles(const std::vector<ShardIndex>& shards) {
  const auto is_empty = [](const ShardIndex& shard) { return shard.file_bytes == 0; };
  const auto first = std::ranges::find_if(shards, is_empty);
  if (first == shards.end()) return;
  LogInfo("io.index", "{} of {} shards are empty files, such as {}: they hold no records",
          std::ranges::count_if(shards, is_empty), shards.size(), first->path);
}

// Returns whether `path` holds a valid index of these shards; then fills in their offsets.
bool ReadCache(const std::filesystem::path& path, std::vector<ShardIndex>& shards) {
  constexpr uint64_t kMaxIndexBytes = uint64_t{16} << 30;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  try {
    return ParseIndex(ReadAll(*OpenFile(path), kMaxIndexBytes), shards);
  } catch (const Error& e) {
    LogWarning("io.index", "cached record index is not used: {}", WithoutTag(e.what()));
    return false;
  }
}

// Returns whether the file was written. If not, `problem` tells the reason.
bool WriteCache(const std::filesystem::path& path, const std::string& bytes, std::string& problem) {
  try {
    WriteWholeFile(path, bytes);
    return true;
  } catch (const DiskError& error) {
    problem = WithoutTag(error.what());
    return false;
  }
}

// Returns the bytes of a cache file, which ParseIndex() reads.
std::string SerializeIndex(const std::vector<ShardIndex>& shards) {
  std::string out(kMagic);
  AppendLittleEndian(out, static_cast<uint64_t>(shards.size()));
  for (const ShardIndex& shard : shards) {
    AppendIdentity(out, shard);
    AppendLittleEndian(out, static_cast<uint64_t>(shard.offsets.size()));
    out.append(reinterpret_cast<const char*>(shard.offsets.data()),
               shard.offsets.size() * sizeof(uint64_t));
  }
  AppendLittleEndian(out, MaskedCrc32c(out));
  return out;
}

// Replaces the cache files that could not be written: keeps their bytes in the memory of this
// process, by file name. Thread-safe.
class MemoryCache {
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

MemoryCache& Memory() {
  static MemoryCache cache;
  return cache;
}

// Returns the index of the shards, which may have no records.
RecordIndex LoadShards(const RecordIndexOptions& options) {
  CAROLE_CHECK(!options.shards.empty(), "an index of no shards");
  std::vector<ShardIndex> shards;
  for (const std::filesystem::path& path : options.shards) shards.push_back(StatShard(path));

  const std::string name = CacheName(shards);
  std::vector<std::filesystem::path> caches = {options.shards[0].parent_path() / name};
  if (!options.work_dir.empty()) caches.push_back(options.work_dir / name);
  for (const auto& cache : caches) {
    if (ReadCache(cache, shards)) return RecordIndex(std::move(shards));
  }
  if (Memory().Read(name, shards)) return RecordIndex(std::move(shards));
  ScanAll(shards, options.threads, options.skip_damage);
  NoteEmptyFiles(shards);
  const auto is_damaged = [](const ShardIndex& shard) { return shard.damaged; };
  if (std::any_of(shards.begin(), shards.end(), is_damaged)) return RecordIndex(std::move(shards));
  std::string bytes = SerializeIndex(shards);
  std::string problem;
  const bool written = std::any_of(caches.begin(), caches.end(), [&](const auto& cache) {
    return WriteCache(cache, bytes, problem);
  });
  if (!written) {
    LogInfo("io.index",
            "the record index cannot be cached: {}; every start scans the shards again; set "
            "{} to a folder that this user can write",
            problem, Option("work_dir"));
    Memory().Keep(name, std::move(bytes));
  }
  return RecordIndex(std::move(shards));
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
  constexpr size_t kWindowBytes = 4096;  // the essay above says why
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
  offsets.push_back(end);
  return offsets;
}

bool ParseIndex(std::string_view bytes, std::vector<ShardIndex>& shards) {
  if (bytes.size() < kMagic.size() + 12 || !bytes.starts_with(kMagic)) return false;
  const std::string_view body = bytes.substr(0, bytes.size() - 4);
  if (MaskedCrc32c(body) != LoadLittleEndian<uint32_t>(bytes.data() + body.size())) return false;
  std::string_view rest = body.substr(kMagic.size());
  const auto take_number = [&rest](uint64_t& number) {
    if (rest.size() < sizeof(number)) return false;
    number = LoadLittleEndian<uint64_t>(rest.data());
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
    if (!take_number(count) || count < 1 || count > rest.size() / sizeof(uint64_t)) return false;
    shard.offsets.resize(count);
    std::memcpy(shard.offsets.data(), rest.data(), count * sizeof(uint64_t));
    rest.remove_prefix(count * sizeof(uint64_t));
  }
  return rest.empty();
}

RecordIndex LoadRecordIndex(const RecordIndexOptions& options) {
  RecordIndex index = LoadShards(options);
  if (index.num_records() == 0)
    throw DataError(fmt::format("[io.index] {}: no records: got {} shards without a record",
                                options.shards[0].parent_path().string(), options.shards.size()));
  return index;
}

}  // namespace carole::io
