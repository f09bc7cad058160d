#include "io/records/shard_writer.h"

#include <numeric>
#include <set>

#include "src/core/parallel.h"
#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ShardPlan Plan(const TemporaryFolder& folder) {
  return {.folder = folder / "out",
          .stem = "train-",
          .suffix = ".tfrecord",
          .starts = {0, 2, 4, 5},
          .build_description = "five numbers",
          .threads = 2};
}

std::vector<std::string> ReadRecords(const std::filesystem::path& path) {
  const auto source = OpenRecords(path);
  TfRecordReader reader(*source);
  std::vector<std::string> records;
  while (const auto record = reader.Next()) records.emplace_back(*record);
  return records;
}

TEST(ShardWriter, WritesEveryShardAndReportsProgress) {
  const TemporaryFolder folder;
  ShardPlan plan = Plan(folder);
  std::vector<int64_t> reports;
  plan.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 5);
    reports.push_back(done);
  };
  WriteShards(plan, [](int64_t i) { return std::to_string(i); });
  EXPECT_THAT(ReadRecords(folder / "out/train-00000-of-00003.tfrecord"), ElementsAre("0", "1"));
  EXPECT_THAT(ReadRecords(folder / "out/train-00001-of-00003.tfrecord"), ElementsAre("2", "3"));
  EXPECT_THAT(ReadRecords(folder / "out/train-00002-of-00003.tfrecord"), ElementsAre("4"));
  EXPECT_EQ(reports.front(), 0);
  EXPECT_EQ(reports.back(), 5);
}

TEST(ShardWriter, ContinuesWithTheMissingShards) {
  const TemporaryFolder folder;
  const ShardPlan plan = Plan(folder);
  const auto fail_at_4 = [](int64_t i) {
    if (i == 4) throw DataError("[test] image 4");
    return std::to_string(i);
  };
  EXPECT_THAT(TextOf<DataError>([&] { WriteShards(plan, fail_at_4); }),
              HasSubstr("[test] image 4; this is the first of 1 examples that could not be made"));
  EXPECT_FALSE(std::filesystem::exists(ShardPath(plan, 2)));
  WriteText(folder / "out/.train-00002-of-00003.tfrecord.host-1-2.tmp", "left by a killed run");
  std::set<int64_t> made;
  WriteShards(plan, [&](int64_t i) {
    made.insert(i);  // only the last shard is missing, so one thread runs this
    return std::to_string(i);
  });
  EXPECT_THAT(made, ElementsAre(4));
  EXPECT_THAT(ReadRecords(ShardPath(plan, 2)), ElementsAre("4"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/.train-00002-of-00003.tfrecord.host-1-2.tmp"));
}

TEST(ShardWriter, LeavesOutFailedExamplesUpToTheLimit) {
  const TemporaryFolder folder;
  ShardPlan plan = Plan(folder);
  const auto fail_at_1_and_3 = [](int64_t i) {
    if (i % 2 == 1) throw DataError("[test] image " + std::to_string(i));
    return std::to_string(i);
  };
  plan.max_bad = 1;
  EXPECT_THAT(TextOf<DataError>([&] { WriteShards(plan, fail_at_1_and_3); }),
              HasSubstr("the first of 2 examples that could not be made"));
  plan.max_bad = 2;
  WriteShards(plan, fail_at_1_and_3);
  std::vector<std::string> written;
  for (int s = 0; s < 3; ++s) {
    for (const std::string& record : ReadRecords(ShardPath(plan, s))) written.push_back(record);
  }
  EXPECT_THAT(written, ElementsAre("0", "2", "4"));
  for (int s = 0; s < 3; ++s) std::filesystem::remove(ShardPath(plan, s));
  plan.max_bad = 5;
  const auto fail = [](int64_t) -> std::string { throw DataError("[test] no image"); };
  EXPECT_THAT(TextOf<DataError>([&] { WriteShards(plan, fail); }),
              HasSubstr("examples could be made; use fewer shards"));
}

TEST(ShardWriter, RefusesShardsOfAnotherBuild) {
  const TemporaryFolder folder;
  ShardPlan plan = Plan(folder);
  const auto make = [](int64_t i) { return std::to_string(i); };
  WriteShards(plan, make);
  plan.build_description = "other numbers";
  EXPECT_THAT(TextOf<UsageError>([&] { WriteShards(plan, make); }),
              HasSubstr("holds train-* of another build: want shards made from 'other numbers'"));
  const TemporaryFolder foreign;
  plan.folder = foreign.path();
  WriteText(foreign / "train-00000-of-00009", "x");
  EXPECT_THAT(TextOf<UsageError>([&] { WriteShards(plan, make); }), HasSubstr("another build"));
}

TEST(ShardWriter, RefusesMoreShardsThanImages) {
  const TemporaryFolder folder;
  ShardPlan plan = Plan(folder);
  plan.starts = {0, 1, 1};
  EXPECT_THAT(TextOf<UsageError>([&] { WriteShards(plan, [](int64_t) { return ""; }); }),
              HasSubstr("more shards than images: got 1 images for 2 shards"));
}

// The bounds come from numpy.linspace(a, b, n + 1).astype(int) in TF-Slim's tool, with 8 threads.
TEST(ShardWriter, DividesExamplesAsTfSlimDoes) {
  EXPECT_THAT(LinspaceBounds(0, 10, 4), ElementsAre(0, 2, 5, 7, 10));
  EXPECT_THAT(LinspaceBounds(7, 10, 2), ElementsAre(7, 8, 10));
  const std::vector<int64_t> train = ShardStarts(1281167, 1024);
  ASSERT_EQ(train.size(), 1025u);
  EXPECT_EQ(train[128], 160145);
  EXPECT_EQ(train[129], 161396);
  EXPECT_EQ(train[1024], 1281167);
  EXPECT_THAT(ShardStarts(10, 2), ElementsAre(0, 5, 10));
}

TEST(ParallelFor, RunsEachItemOnce) {
  std::vector<std::atomic<int>> counts(1000);
  ParallelFor(1000, 4, [&](int64_t i) { ++counts[static_cast<size_t>(i)]; });
  for (const auto& count : counts) EXPECT_EQ(count, 1);
  ParallelFor(0, 4, [](int64_t) { FAIL(); });
}

TEST(ParallelFor, ThrowsTheErrorOfTheFirstItem) {
  EXPECT_EQ(TextOf<DataError>(
                [] { ParallelFor(100, 3, [](int64_t i) { throw DataError(std::to_string(i)); }); }),
            "0");
}

}  // namespace
}  // namespace carole::io
