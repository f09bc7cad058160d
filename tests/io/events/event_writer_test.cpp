// Checks the bytes of event files. tests/interop checks that TensorBoard can read them.
#include "io/events/event_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <protozero/pbf_reader.hpp>

#include "io/events/histogram.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/crc32c.h"
#include "tests/support/temporary_folder.h"

namespace carole::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::ThrowsMessage;

// Returns the data of all records. Checks lengths and checksums.
std::vector<std::string> ReadRecords(const std::string& bytes) {
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const auto size = LoadLittleEndian<uint64_t>(&bytes[at]);
    EXPECT_EQ(LoadLittleEndian<uint32_t>(&bytes[at + 8]), MaskedCrc32c(bytes.substr(at, 8)));
    if (at + size + 16 > bytes.size()) throw DataError("partial record");
    records.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(LoadLittleEndian<uint32_t>(&bytes[at + 12 + size]), MaskedCrc32c(records.back()));
    at += size + 16;
  }
  return records;
}

TEST(EventWriter, FileBeginsWithTheFormatVersion) {
  const TemporaryFolder folder;
  const EventWriter writer(folder.path());
  EXPECT_THAT(std::filesystem::path(writer.path()).filename().string(),
              MatchesRegex(R"(events\.out\.tfevents\.[0-9]{10}\..+\.[0-9]+\.[0-9]+\.v2)"));
  const auto records = ReadRecords(ReadText(writer.path()));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_THAT(records[0], HasSubstr("brain.Event:2"));
}

TEST(EventWriter, ScalarsAreInTheFileAfterFlush) {
  const TemporaryFolder folder;
  EventWriter writer(folder.path());
  const auto before = std::filesystem::file_size(writer.path());
  writer.AddScalar(7, "total_loss", 2.5f);
  EXPECT_EQ(std::filesystem::file_size(writer.path()), before);
  writer.Flush();
  const auto records = ReadRecords(ReadText(writer.path()));
  ASSERT_EQ(records.size(), 2u);
  protozero::pbf_reader event(records[1]);
  ASSERT_TRUE(event.next(2));
  EXPECT_EQ(event.get_int64(), 7);
  EXPECT_THAT(records[1], HasSubstr(std::string("\x0a\x0atotal_loss\x15\0\0\x20\x40", 17)));
}

// The start event makes TensorBoard discard what an earlier run wrote from that step on.
TEST(EventWriter, ResumedRunWritesAStartEvent) {
  const TemporaryFolder folder;
  const EventWriter fresh(folder.path()), resumed(folder.path(), 7);
  EXPECT_EQ(ReadRecords(ReadText(fresh.path())).size(), 1u);
  const auto records = ReadRecords(ReadText(resumed.path()));
  ASSERT_EQ(records.size(), 2u);
  protozero::pbf_reader event(records[1]);
  ASSERT_TRUE(event.next(2));
  EXPECT_EQ(event.get_int64(), 7);
  ASSERT_TRUE(event.next(7));  // session_log
  protozero::pbf_reader log = event.get_message();
  ASSERT_TRUE(log.next(1));
  EXPECT_EQ(log.get_enum(), 1);  // START
}

TEST(EventWriter, WritesLargeValuesWithoutFlush) {
  const TemporaryFolder folder;
  EventWriter writer(folder.path());
  writer.AddScalar(0, std::string(300'000, 'x'), 1);
  EXPECT_EQ(ReadRecords(ReadText(writer.path())).size(), 2u);
}

TEST(EventWriter, WritersHaveDifferentFilesAndStepsMustNotDecrease) {
  const TemporaryFolder folder;
  EventWriter a(folder.path());
  EventWriter b(folder.path());
  EXPECT_NE(a.path(), b.path());
  a.AddScalar(5, "x", 0);
  a.AddScalar(5, "y", 0);
  EXPECT_THROW(a.AddScalar(4, "x", 0), InternalError);
}

// TensorBoard reads files in the order of their names, and a clock may be set back.
TEST(EventWriter, FileNameSortsAfterAllExistingOnes) {
  const TemporaryFolder folder;
  const std::string ahead = folder / "events.out.tfevents.4000000000.host.1.0.v2";
  std::ofstream(ahead).put('x');
  std::ofstream(folder / "events.out.tfevents.old").put('x');
  const EventWriter writer(folder.path());
  EXPECT_GT(writer.path(), ahead);
  EXPECT_THAT(writer.path(), HasSubstr("tfevents.4000000001."));
}

TEST(EventWriter, MissingFolderIsADiskError) {
  EXPECT_THAT([] { EventWriter writer("/nonexistent/folder"); },
              ThrowsMessage<DiskError>(HasSubstr("make its folder first")));
}

TEST(EventWriter, FailedWriteLeavesOnlyWholeRecords) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    EventWriter writer(folder.path());
    writer.AddScalar(1, "small", 1);
    writer.Flush();
    const rlimit limit{4096, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    writer.AddScalar(2, std::string(300'000, 'x'), 1);
    writer.AddScalar(2, "after it", 1);
    try {
      writer.Flush();
    } catch (const DiskError&) {
      const size_t num_written = ReadRecords(ReadText(writer.path())).size();
      const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &none);
      writer.Flush();  // writes what failed before
      _exit(num_written == 2 ? 42 : 1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(ReadRecords(ReadText(entry.path())).size(), 4u);
  }
}

TEST(Histogram, CountsIntoExponentialBuckets) {
  const float inf = std::numeric_limits<float>::infinity();
  const Histogram h =
      MakeHistogram(std::vector<float>{-1, 0, 0, 1, 1, 1.01f, 3, std::nanf(""), inf});
  EXPECT_EQ(h.count, 7);
  EXPECT_EQ(h.min, -1);
  EXPECT_EQ(h.max, 3);
  EXPECT_NEAR(h.sum, 5.01, 1e-6);
  EXPECT_NEAR(h.sum_squares, 1 + 1 + 1 + 1.0201 + 9, 1e-5);
  // -1 | empty | two zeros | empty | 1, 1, 1.01 in buckets up to 1.1 | … | 3
  double total = 0;
  double left = h.min;
  for (size_t i = 0; i < h.limits.size(); ++i) {
    EXPECT_GT(h.limits[i], i == 0 ? left - 1 : left);
    EXPECT_TRUE(i == 0 || h.counts[i] != 0 || h.counts[i - 1] != 0)
        << "two consecutive empty buckets";
    left = h.limits[i];
    total += h.counts[i];
  }
  EXPECT_EQ(total, 7);
  EXPECT_GE(h.limits.back(), 3);
  EXPECT_LT(h.limits.back(), 3 * 1.1 + 1e-9);
  const auto zero = std::ranges::find(h.limits, 0.0);
  ASSERT_NE(zero, h.limits.end());
  EXPECT_EQ(h.counts[static_cast<size_t>(zero - h.limits.begin())], 2);
}

TEST(Histogram, IsEmptyWithoutFiniteValues) {
  EXPECT_TRUE(MakeHistogram({}).limits.empty());
  EXPECT_EQ(MakeHistogram(std::vector<float>{std::nanf("")}).count, 0);
}

}  // namespace
}  // namespace carole::io
