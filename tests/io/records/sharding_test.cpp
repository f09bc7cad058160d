#include "io/records/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace carole::io {
namespace {

// Returns the positions that all ranks together visit in one epoch, batch after batch, from
// `position` on.
std::vector<int64_t> Visit(int64_t num_records, int64_t local_batch, int size,
                           int64_t position = 0) {
  std::vector<int64_t> visited;
  for (DataPosition at{3, position}; at.epoch == 3;) {
    DataPosition next;
    for (int rank = 0; rank < size; ++rank) {
      const Sharing sharing{num_records, local_batch, rank, size};
      const BatchShare share = ShareOf(sharing, at.epoch, at.position);
      for (int64_t row = 0; row < share.valid; ++row) visited.push_back(share.PositionOf(row));
      next = PositionAfter(sharing, share);
    }
    at = next;
  }
  return visited;
}

TEST(Sharding, AllRanksTogetherSeeEachRecordOnceInOrder) {
  for (int64_t num_records : {1, 2, 7, 64, 100, 101}) {
    std::vector<int64_t> all(num_records);
    std::iota(all.begin(), all.end(), 0);
    for (int size : {1, 2, 3, 4, 7, 8}) {
      for (int64_t local_batch : {1, 2, 5, 32, 200}) {
        EXPECT_EQ(Visit(num_records, local_batch, size), all)
            << num_records << " " << size << " " << local_batch;
      }
    }
  }
}

TEST(Sharding, ContinuesAtAnyPosition) {
  for (int64_t position = 0; position < 50; ++position) {
    std::vector<int64_t> rest(50 - position);
    std::iota(rest.begin(), rest.end(), position);
    EXPECT_EQ(Visit(50, 4, 3, position), rest);
  }
}

TEST(Sharding, ShortBatchRepeatsItsOwnSamples) {
  // 10 records, 2 ranks with local batch 3: the second global batch has the positions 6 to 9, so
  // rank 1 has one valid row.
  const Sharing sharing{.num_records = 10, .local_batch = 3, .rank = 1, .size = 2};
  const BatchShare share = ShareOf(sharing, 0, 6);
  EXPECT_EQ(share.global_valid, 4);
  EXPECT_EQ(share.valid, 1);
  EXPECT_EQ(share.first, 9);
  EXPECT_EQ(share.PositionOf(0), 9);
  EXPECT_EQ(share.PositionOf(1), 6);
  EXPECT_EQ(share.PositionOf(2), 7);
  EXPECT_EQ(PositionAfter(sharing, share), (DataPosition{1, 0}));
}

TEST(Sharding, RankWithoutValidRowsStillHasSamples) {
  const BatchShare share =
      ShareOf({.num_records = 2, .local_batch = 3, .rank = 3, .size = 4}, 0, 0);
  EXPECT_EQ(share.valid, 0);
  for (int64_t row = 0; row < 3; ++row) EXPECT_LT(share.PositionOf(row), 2);
}

std::vector<int64_t> Order(int64_t num_records, uint64_t seed, int64_t epoch) {
  const EpochOrder order(num_records, {.shuffle = true, .seed = seed}, epoch);
  std::vector<int64_t> records;
  for (int64_t i = 0; i < num_records; ++i) records.push_back(order[i]);
  return records;
}

TEST(EpochOrder, IsAPermutationKeyedBySeedAndEpoch) {
  for (int64_t num_records : {1, 2, 3, 1000}) {
    std::vector<int64_t> sorted = Order(num_records, 1, 0);
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < num_records; ++i) EXPECT_EQ(sorted[i], i);
  }
  EXPECT_EQ(Order(1000, 1, 0), Order(1000, 1, 0));
  EXPECT_NE(Order(1000, 1, 0), Order(1000, 1, 1));
  EXPECT_NE(Order(1000, 1, 0), Order(1000, 2, 0));
}

TEST(EpochOrder, AllPermutationsAreEquallyLikely) {
  // There are 24 permutations of 4 records. In 24000 epochs each is expected 1000 times with a
  // standard deviation of 31. The tolerance of 200 is more than six of those.
  std::vector<int> count(4 * 4 * 4 * 4);
  for (int64_t epoch = 0; epoch < 24000; ++epoch) {
    const auto order = Order(4, 7, epoch);
    ++count[order[0] + 4 * order[1] + 16 * order[2] + 64 * order[3]];
  }
  int seen = 0;
  for (int n : count) {
    if (n == 0) continue;
    ++seen;
    EXPECT_NEAR(n, 1000, 200);
  }
  EXPECT_EQ(seen, 24);
}

TEST(EpochOrder, BlockShuffleKeepsBlocksWithinTheirWindow) {
  constexpr int64_t kBlock = 8;
  const OrderOptions options{.shuffle = true, .block_records = kBlock, .seed = 3};
  constexpr int64_t kRecords = 1003;
  const EpochOrder order(kRecords, options, 2);
  std::vector<int> seen(kRecords);
  std::set<int64_t> firsts;
  int64_t neighbors = 0;
  for (int64_t begin = 0; begin < kRecords; begin += options.window_records()) {
    const int64_t end = std::min(begin + options.window_records(), kRecords);
    std::set<int64_t> blocks;
    for (int64_t position = begin; position < end; ++position) {
      ++seen[order[position]];
      blocks.insert(order[position] / kBlock);
      if (position > begin) neighbors += order[position] == order[position - 1] + 1;
    }
    // A window has one block more if the last, short block shifted its borders.
    EXPECT_LE(blocks.size(), size_t{OrderOptions::kBlocksPerWindow + 1});
    firsts.insert(*blocks.begin());
  }
  for (int count : seen) EXPECT_EQ(count, 1);
  EXPECT_LT(neighbors, 40);  // the records of a window are not in order
  const EpochOrder next(kRecords, options, 3);
  int64_t same = 0;
  for (int64_t position = 0; position < kRecords; ++position)
    same += order[position] == next[position];
  EXPECT_LT(same, 30);
}

TEST(EpochOrder, WithoutShuffleIsTheOrderInTheFiles) {
  const EpochOrder order(5, {.seed = 1}, 2);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(order[i], i);
}

}  // namespace
}  // namespace carole::io
