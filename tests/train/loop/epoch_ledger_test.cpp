#include "src/train/loop/epoch_ledger.h"

#include <gmock/gmock.h>

#include "src/core/error.h"
#include "tests/support/run_ranks.h"

namespace carole::train {
namespace {

using carole::testing::RunRanks;

// A source with the given expected counts and no batches.
class CountingSource : public io::BatchSource {
 public:
  explicit CountingSource(const io::EpochCounts& expected) : expected_(expected) {}
  const io::Batch* Next() override { return nullptr; }
  int64_t num_samples() const override { return expected_.seen; }
  io::EpochCounts ExpectedCounts(int64_t) const override { return expected_; }

 private:
  io::EpochCounts expected_;
};

// Ends an epoch with a batch that has these counts. `start` is the position of the source.
void EndEpoch(const io::EpochCounts& counts, const CountingSource& source, const RunState& start,
              collectives::Communicator& communicator) {
  EpochLedger ledger(communicator, 0);
  ledger.Open(source, start);
  RunState state = start;
  io::Batch batch{.epoch = 3, .next_epoch = 4, .counts = counts};
  ledger.EndBatch(batch, state);
  EXPECT_EQ(state.epoch, 4);
  EXPECT_EQ(state.position, 0);
}

const CountingSource kSource({.seen = 12, .hash = 60});

TEST(EpochLedgerTest, SumsOverRanks) {
  RunRanks(3, [](collectives::Communicator& c) {
    io::EpochCounts counts{.seen = 4, .hash = 20};
    EXPECT_NO_THROW(EndEpoch(counts, kSource, {}, c));
    if (c.rank() == 1) {  // one record was skipped; it still counts as visited
      counts.seen = 3;
      counts.skipped[2] = 1;
    }
    EXPECT_NO_THROW(EndEpoch(counts, kSource, {}, c));
  });
}

// These records appear in the log, but the source did not have to deliver them.
TEST(EpochLedgerTest, AddsRecordsSeenBeforeARestart) {
  ::testing::internal::CaptureStderr();
  RunRanks(1, [](collectives::Communicator& c) {
    const RunState before{.epoch = 3, .position = 8, .skipped = {1, 0, 0}};
    EXPECT_NO_THROW(EndEpoch({.seen = 11, .skipped = {0, 0, 1}, .hash = 60}, kSource, before, c));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("epoch 3: 18 records seen, 2 skipped (1 damaged records, 1 bad "
                                   "images), 0 duplicated"));
}

TEST(EpochLedgerTest, FindsRecordsThatWereSeenTwiceOrLost) {
  RunRanks(2, [](collectives::Communicator& c) {
    const uint64_t hash = c.rank() == 0 ? 31 : 30;  // the expected number, but other records
    EXPECT_THROW(EndEpoch({.seen = 6, .hash = hash}, kSource, {}, c), InternalError);
    EXPECT_THROW(EndEpoch({.seen = 7, .hash = 30}, kSource, {}, c), InternalError);
  });
}

TEST(EpochLedgerTest, SkipsSourcesThatDoNotCount) {
  RunRanks(1, [](collectives::Communicator& c) {
    EXPECT_NO_THROW(EndEpoch({}, CountingSource({}), {}, c));
  });
}

TEST(EpochLedgerTest, AllowsAFewSkippedRecords) {
  EXPECT_NO_THROW(RequireFewSkipped(2, 2));
  EXPECT_THROW(RequireFewSkipped(3, 2), DataError);
}

TEST(EpochLedgerTest, DescribesCounts) {
  EXPECT_EQ(DescribeCounts({.seen = 60000}), "60000 records seen, 0 skipped, 0 duplicated");
  EXPECT_EQ(DescribeCounts({.seen = 59997, .skipped = {2, 0, 1}}),
            "59997 records seen, 3 skipped (2 damaged records, 1 bad images), 0 duplicated");
}

}  // namespace
}  // namespace carole::train
