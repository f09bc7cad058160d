#include "io/records/record_index.h"

#include <algorithm>

#include "tests/io/compress.h"
#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

std::vector<std::string> FilesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    names.push_back(file.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Two shards of 2 and 3 records.
RecordIndexOptions TwoShards(const TemporaryFolder& folder) {
  WriteText(folder / "a", Records({"first", "second"}));
  WriteText(folder / "b", Records({"third", "", "fifth record"}));
  return {.shards = {folder / "a", folder / "b"}, .threads = 2};
}

TEST(RecordIndex, FindsEveryRecord) {
  const TemporaryFolder folder;
  const RecordIndex index = LoadRecordIndex(TwoShards(folder));
  ASSERT_EQ(index.num_records(), 5);
  const std::vector<std::string> want = {"first", "second", "third", "", "fifth record"};
  std::string buffer;
  for (int64_t record = 0; record < 5; ++record) {
    const RecordIndex::Entry entry = index.Find(record);
    EXPECT_EQ(entry.length, want[record].size());
    EXPECT_EQ(entry.index, record < 2 ? record : record - 2);
    EXPECT_EQ(ReadRecordAt(*OpenFile(index.shards()[entry.shard].path), entry.offset, 0, buffer),
              want[record]);
  }
}

TEST(RecordIndex, ScansRecordsAcrossReadWindows) {
  std::vector<std::string> records;
  for (int i = 0; i < 500; ++i) records.emplace_back(static_cast<size_t>(i * 37 % 9000), 'x');
  const std::vector<uint64_t> offsets = ScanRecords(DamagedBytes{Records(records)}.Open());
  ASSERT_EQ(offsets.size(), 501u);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(offsets[i + 1] - offsets[i], records[i].size() + 16);
}

// The second header crosses the end of the scan's read window, split after each of its bytes. The
// same holds for the search after a damaged first header.
TEST(RecordIndex, FindsHeadersAtTheEdgesOfReadWindows) {
  for (size_t size = 4000; size < 4120; ++size) {
    DamagedBytes file{Records({std::string(size, 'x'), "second", "third"})};
    const std::vector<uint64_t> offsets = {0, size + 16, size + 16 + 22, file.bytes.size()};
    EXPECT_EQ(ScanRecords(file.Open()), offsets) << size;
    file.FlipBit(1, 5);
    bool damaged = false;
    EXPECT_EQ(ScanRecords(file.Open(), &damaged), offsets) << size << ", damaged";
    EXPECT_TRUE(damaged);
  }
}

// The damaged bytes become one record, and the records after them are found.
TEST(RecordIndex, ContinuesAfterDamageIfRequested) {
  const std::vector<std::string> records = {"first", "second, a little longer", "third", "fourth"};
  const std::string whole = Records(records);
  DamagedBytes file{whole};
  const uint64_t second = Records({records[0]}).size();
  const uint64_t third = Records({records[0], records[1]}).size();
  file.FlipBit(second + 1, 5);
  EXPECT_THAT(TextOf<DataError>([&] { ScanRecords(file.Open()); }),
              HasSubstr("train-00012: record 1 at byte 21: length checksum mismatch"));
  bool damaged = false;
  std::vector<uint64_t> offsets = ScanRecords(file.Open(), &damaged);
  EXPECT_TRUE(damaged);
  ASSERT_EQ(offsets.size(), 5u);
  EXPECT_EQ(offsets[1], second);
  EXPECT_EQ(offsets[2], third);
  file.bytes.resize(whole.size() - 3);
  offsets = ScanRecords(file.Open(), &damaged);
  EXPECT_EQ(offsets.size(), 5u);  // the truncated tail counts as a record that cannot be read
  EXPECT_EQ(offsets.back(), file.bytes.size());
  damaged = false;
  EXPECT_EQ(ScanRecords(DamagedBytes{whole}.Open(), &damaged).size(), 5u);
  EXPECT_FALSE(damaged);
}

// TensorFlow reads both. But a file of 0 bytes may come from a failed copy.
TEST(RecordIndex, ReadsEmptyShards) {
  const TemporaryFolder folder;
  RecordIndexOptions options = TwoShards(folder);
  const auto find_all = [&] {
    const RecordIndex index = LoadRecordIndex(options);
    std::vector<int> shards;
    for (int64_t record = 0; record < index.num_records(); ++record)
      shards.push_back(index.Find(record).shard);
    return shards;
  };
  WriteText(folder / "none", Compress("", 31));
  options.shards = {folder / "none", folder / "a", folder / "none", folder / "b", folder / "none"};
  const auto want = testing::ElementsAre(1, 1, 3, 3, 3);
  EXPECT_THAT(find_all(), want);
  EXPECT_THAT(find_all(), want);  // from the cache
  WriteText(folder / "none", "");
  EXPECT_THAT(TextOf<DataError>(find_all),
              HasSubstr("none: the file is empty: got 0 records, want at least 1; re-copy the "
                        "shard, or pass \x1f$(max_bad_records)=1"));
  options.skip_damage = true;
  EXPECT_THAT(find_all(), want);
  options.shards = {folder / "none"};
  EXPECT_THAT(TextOf<DataError>(find_all), HasSubstr("no records: got 1 shards"));
}

TEST(RecordIndex, DoesNotCacheDamagedShards) {
  const TemporaryFolder folder;
  RecordIndexOptions options = TwoShards(folder);
  WriteText(folder / "b", Records({"third", "", "fifth record"}).substr(0, 40));
  options.skip_damage = true;
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 5);
  EXPECT_EQ(FilesIn(folder.path()).size(), 2u);
}

TEST(RecordIndex, IsCachedNextToTheData) {
  const TemporaryFolder folder;
  const RecordIndexOptions options = TwoShards(folder);
  LoadRecordIndex(options);
  ASSERT_EQ(FilesIn(folder.path()).size(), 3u);
  // With a valid cache the shards are not read: other bytes of the same size and time go unnoticed.
  const auto time = std::filesystem::last_write_time(folder / "a");
  WriteText(folder / "a", std::string(Records({"first", "second"}).size(), 'x'));
  std::filesystem::last_write_time(folder / "a", time);
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 5);
}

TEST(RecordIndex, IsTheSameForAllSpellingsOfTheFolder) {
  const TemporaryFolder folder;
  RecordIndexOptions options = TwoShards(folder);
  LoadRecordIndex(options);
  for (const char* spelling : {"/./", "//"}) {
    options.shards = {folder.path() + spelling + "a", folder.path() + spelling + "b"};
    EXPECT_EQ(LoadRecordIndex(options).num_records(), 5);
  }
  EXPECT_EQ(FilesIn(folder.path()).size(), 3u);
}

TEST(RecordIndex, ScansAChangedShardAgain) {
  const TemporaryFolder folder;
  const RecordIndexOptions options = TwoShards(folder);
  LoadRecordIndex(options);
  WriteText(folder / "a", Records({"first", "second", "one more"}));
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 6);
  std::filesystem::last_write_time(
      folder / "b", std::filesystem::last_write_time(folder / "b") + std::chrono::seconds(5));
  WriteText(folder / "b", Records({"thirx", "", "fifth record"}));
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 6);
}

TEST(RecordIndex, DoesNotUseADamagedCache) {
  const TemporaryFolder folder;
  const RecordIndexOptions options = TwoShards(folder);
  LoadRecordIndex(options);
  const std::string cache = (folder / FilesIn(folder.path())[0]);
  const std::string whole = ReadText(cache);
  for (size_t offset = 0; offset < whole.size(); ++offset) {
    DamagedBytes damaged{whole};
    damaged.FlipBit(offset, static_cast<int>(offset % 8));
    std::vector<ShardIndex> shards = LoadRecordIndex(options).shards();
    EXPECT_FALSE(ParseIndex(damaged.bytes, shards)) << offset;
  }
  WriteText(cache, whole.substr(0, whole.size() - 1));
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 5);
  EXPECT_EQ(ReadText(cache), whole);
}

TEST(RecordIndex, IsCachedInWorkDirIfTheDataFolderIsReadOnly) {
  const TemporaryFolder folder;
  const TemporaryFolder work;
  RecordIndexOptions options = TwoShards(folder);
  LoadRecordIndex(options);
  // A folder of the cache file's name makes writing fail, even for root.
  const std::filesystem::path cache = folder / FilesIn(folder.path())[0];
  std::filesystem::remove(cache);
  std::filesystem::create_directory(cache);
  options.work_dir = work.path();
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 5);
  ASSERT_EQ(FilesIn(work.path()), std::vector<std::string>{cache.filename()});
  const auto written = std::filesystem::last_write_time(work / cache.filename().string());
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 5);
  EXPECT_EQ(std::filesystem::last_write_time(work / cache.filename().string()), written);
}

// The shard is damaged after the first load; a second scan would notice it.
TEST(RecordIndex, IsKeptInMemoryIfNoFileCanBeWritten) {
  const TemporaryFolder folder;
  const RecordIndexOptions options = TwoShards(folder);
  LoadRecordIndex(options);
  const std::filesystem::path cache = folder / FilesIn(folder.path())[0];
  std::filesystem::remove(cache);
  std::filesystem::create_directory(cache);
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 5);
  EXPECT_EQ(FilesIn(folder.path()).size(), 3u);
  const auto written = std::filesystem::last_write_time(folder / "a");
  WriteText(folder / "a", std::string(std::filesystem::file_size(folder / "a"), 'x'));
  std::filesystem::last_write_time(folder / "a", written);
  EXPECT_EQ(LoadRecordIndex(options).num_records(), 5);
  std::filesystem::last_write_time(folder / "a", written + std::chrono::seconds(1));
  EXPECT_THROW(LoadRecordIndex(options), DataError);
}

TEST(RecordIndex, NamesTheDamagedShard) {
  const TemporaryFolder folder;
  const RecordIndexOptions options = TwoShards(folder);
  const auto error = [&] { return TextOf<DataError>([&] { LoadRecordIndex(options); }); };
  WriteText(folder / "b", "");
  EXPECT_THAT(error(), HasSubstr("/b: the file is empty: got 0 records, want at least 1"));
  WriteText(folder / "a", Records({"first", "second"}).substr(0, 40));
  EXPECT_THAT(error(), HasSubstr("/a: record 1 at byte 21: truncated record: got 19 bytes"));
  WriteText(folder / "a", "These are not records at all.");
  EXPECT_THAT(error(), HasSubstr("/a: record 0 at byte 0: length checksum mismatch"));
}

}  // namespace
}  // namespace carole::io
