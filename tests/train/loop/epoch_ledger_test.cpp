#include "src/train/loop/epoch_ledger.h"

#include <gmock/gmock.h>

#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/error.h"
#include "src/core/rng.h"
#include "tests/support/run_ranks.h"

namespace carole::train {
namespace {

using carole::testing::RunRanks;
using collectives::Communicator;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;
using Records = std::vector<int64_t>;

constexpr int64_t kNumRecords = 6;
constexpr int64_t kEpoch = 3;

uint64_t HashOf(const Records& records) {
  uint64_t hash = 0;
  for (const int64_t record : records) hash += SplitMix64(static_cast<uint64_t>(record));
  return hash;
}

// A source that visits the records in their order, from `start` on. It has no batches.
class OrderedSource : public io::BatchSource {
 public:
  explicit OrderedSource(const RunState& start) : start_(start) {}
  const io::Batch* Next() override { return nullptr; }
  int64_t num_samples() const override { return kNumRecords; }
  io::EpochCounts ExpectedCounts(int64_t epoch) const override {
    Records rest(kNumRecords);
    std::iota(rest.begin(), rest.end(), 0);
    if (epoch == start_.epoch) rest.erase(rest.begin(), rest.begin() + start_.position);
    return {.seen = std::ssize(rest), .hash = HashOf(rest)};
  }

 private:
  RunState start_;
};

// A rank of one run: its source, and a ledger that may continue that of an earlier run.
struct LedgerRun {
  explicit LedgerRun(Communicator& communicator, const RunState& start = {.epoch = kEpoch},
                     const EpochHistory& history = {})
      : state(start), source(start), ledger(communicator, 0) {
    if (!history.empty()) ledger.Load({{kLedger, history.ToJson()}});
    ledger.Share(state);
    ledger.Open(source, state);
  }

  // Ends a batch that has visited these records on this rank; all ranks together have then visited
  // `position` records of the epoch. The first `num_bad` records were skipped.
  bool Visit(const Records& records, int64_t position, int64_t num_bad = 0) {
    counts.seen += std::ssize(records) - num_bad;
    counts.skipped[2] += num_bad;
    counts.hash += HashOf(records);
    const bool is_last = position == kNumRecords;
    io::Batch batch{.epoch = state.epoch,
                    .next_epoch = state.epoch + (is_last ? 1 : 0),
                    .next_position = is_last ? 0 : position,
                    .counts = counts,
                    .records = records};
    batch.all_skipped = counts.skipped;
    if (is_last) counts = {};
    return ledger.EndBatch(batch, state);
  }

  RunState state;
  OrderedSource source;
  EpochLedger ledger;
  io::EpochCounts counts;  // of this rank
};

std::string LogOf(const std::function<void()>& work) {
  ::testing::internal::CaptureStderr();
  work();
  return ::testing::internal::GetCapturedStderr();
}

TEST(EpochLedgerTest, SumsOverRanks) {
  RunRanks(3, [](Communicator& c) {
    LedgerRun run(c);
    EXPECT_FALSE(run.Visit({c.rank()}, 3, c.rank() == 1 ? 1 : 0));
    EXPECT_TRUE(run.Visit({3 + c.rank()}, 6));
    EXPECT_EQ(run.state.epoch, kEpoch + 1);
    const EpochRecords& epoch = run.ledger.history().epochs.at(0);
    EXPECT_EQ(epoch.epoch, kEpoch);
    EXPECT_EQ(epoch.counts.seen, 5);
    EXPECT_EQ(epoch.counts.num_skipped(), 1);
    EXPECT_EQ(epoch.counts.hash, HashOf({0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(epoch.duplicated, 0);
    EXPECT_EQ(epoch.missing, 0);
    EXPECT_TRUE(epoch.is_complete);
    EXPECT_FALSE(run.ledger.history().current);
  });
}

// One rank repeats its own record; two ranks visit the same one; both lose the record 5.
TEST(EpochLedgerTest, CountsDuplicatedAndMissingRecords) {
  for (const Records& of_rank_0 : {Records{0, 1, 1}, Records{0, 1, 2}}) {
    RunRanks(2, [&](Communicator& c) {
      LedgerRun run(c);
      EXPECT_THAT(
          [&] {
            run.Visit(c.rank() == 0 ? of_rank_0 : Records{2, 3, 4}, 6);
          },
          ThrowsMessage<InternalError>(
              HasSubstr("epoch 3: the ranks did not see each record once: got 6 of 6 records, 1 "
                        "duplicated, 1 missing")));
    });
  }
  RunRanks(2, [&](Communicator& c) {
    LedgerRun run(c);
    EXPECT_THAT(
        [&] {
          run.Visit(c.rank() == 0 ? Records{0, 1} : Records{4, 5}, 6);
        },
        ThrowsMessage<InternalError>(HasSubstr("4 of 6 records, 0 duplicated, 2 missing")));
  });
}

// Returns the history of a run that was saved after these records, on one rank.
EpochHistory HistoryAfter(const Records& records, int64_t num_bad = 0) {
  EpochHistory history;
  RunRanks(1, [&](Communicator& c) {
    LedgerRun run(c);
    run.Visit(records, std::ssize(records), num_bad);
    run.ledger.Collect(1);
    history = run.ledger.history();
  });
  EXPECT_EQ(history.current->visits(), std::ssize(records));
  return history;
}

TEST(EpochLedgerTest, AResumedRunContinuesTheEpoch) {
  const EpochHistory before = HistoryAfter({0, 1}, 1);
  const std::string log = LogOf([&] {
    RunRanks(2, [&](Communicator& c) {
      // Rank 1 gets the ledger from rank 0.
      LedgerRun run(c, {.epoch = kEpoch, .position = 2, .skipped = {0, 0, 1}},
                    c.rank() == 0 ? before : EpochHistory());
      run.Visit({2 + c.rank()}, 4);
      run.ledger.Collect(2);
      EXPECT_EQ(run.ledger.history().current->visits(), 4);
      EXPECT_EQ(run.ledger.history().current->counts.hash, HashOf({0, 1, 2, 3}));
      run.Visit({4 + c.rank()}, 6);
      const EpochRecords& epoch = run.ledger.history().epochs.at(0);
      EXPECT_EQ(epoch.visits(), 6);
      EXPECT_EQ(epoch.counts.hash, HashOf({0, 1, 2, 3, 4, 5}));
      EXPECT_EQ(epoch.planned, 0);
    });
  });
  EXPECT_THAT(log, AllOf(HasSubstr("epoch 3 continues: its first 2 records were seen once"),
                         HasSubstr("epoch 3: 5 records seen, 1 skipped (1 bad images), 0 dupl"),
                         Not(HasSubstr("not each record"))));
}

// The checkpoint's ledger has the right number of records, or too many, but the wrong ones.
TEST(EpochLedgerTest, WarnsOfOtherRecordsBeforeAResume) {
  for (const Records& records : {Records{0, 0}, Records{0, 1, 1}}) {
    const EpochHistory before = HistoryAfter(records);
    const int64_t too_many = std::ssize(records) - 2;
    const std::string log = LogOf([&] {
      RunRanks(1, [&](Communicator& c) {
        LedgerRun run(c, {.epoch = kEpoch, .position = 2}, before);
        run.Visit({2, 3, 4, 5}, 6);
        EXPECT_EQ(run.ledger.history().epochs.at(0).counts.seen, 6 + too_many);
        EXPECT_GE(run.ledger.history().epochs.at(0).duplicated, 1);
      });
    });
    EXPECT_THAT(log, AllOf(HasSubstr("epoch 3: other records than planned before the resume: got " +
                                     std::to_string(records.size())),
                           HasSubstr("0 skipped, 1 duplicated"),
                           HasSubstr("epoch 3: not each record was seen once")));
  }
}

// A checkpoint of an older version has no ledger. One of survivors has an old one.
TEST(EpochLedgerTest, CountsWhatTheLedgerLacksAsPlanned) {
  for (const EpochHistory& before : {EpochHistory(), HistoryAfter({0, 1})}) {
    const std::string log = LogOf([&] {
      RunRanks(1, [&](Communicator& c) {
        LedgerRun run(c, {.epoch = kEpoch, .position = 4, .skipped = {1, 0, 0}}, before);
        run.Visit({4, 5}, 6);
        const EpochRecords& epoch = run.ledger.history().epochs.at(0);
        EXPECT_EQ(epoch.planned, before.empty() ? 4 : 2);
        EXPECT_EQ(epoch.counts.seen, 5);
        EXPECT_EQ(epoch.counts.skipped[0], 1);
        EXPECT_EQ(epoch.counts.hash, HashOf({0, 1, 2, 3, 4, 5}));
      });
    });
    EXPECT_THAT(log, AllOf(HasSubstr("of its first 4 records are counted as planned"),
                           Not(HasSubstr("not each record"))));
  }
}

// A rank that is lost in the last step of an epoch reports no sums. What a save has collected
// before is kept.
TEST(EpochLedgerTest, EndsAnEpochAsPlannedIfNoRankReports) {
  for (const int64_t collected : {0, 2}) {
    RunRanks(1, [&](Communicator& c) {
      LedgerRun run(c);
      run.Visit({0, 1}, 2);
      if (collected > 0) run.ledger.Collect(1);
      const io::Batch last{
          .epoch = kEpoch, .next_epoch = kEpoch + 1, .next_position = 0, .all_skipped = {0, 1, 0}};
      const EpochHistory history = run.ledger.AfterPlanned(last);
      ASSERT_EQ(history.epochs.size(), 1u);
      EXPECT_FALSE(history.current);
      const EpochRecords& epoch = history.epochs[0];
      EXPECT_EQ(epoch.epoch, kEpoch);
      EXPECT_EQ(epoch.counts.seen, 5);
      EXPECT_EQ(epoch.counts.skipped[1], 1);
      EXPECT_EQ(epoch.counts.hash, HashOf({0, 1, 2, 3, 4, 5}));
      EXPECT_EQ(epoch.planned, kNumRecords - collected);
      EXPECT_EQ(epoch.missing, 0);
      EXPECT_TRUE(epoch.is_complete);
      EXPECT_TRUE(run.ledger.history().epochs.empty());  // the ledger itself has not changed
    });
  }
}

// The records have changed, so the trainer continues with the next epoch.
TEST(EpochLedgerTest, KeepsAnEpochThatWasNotContinued) {
  const EpochHistory before = HistoryAfter({0, 1});
  RunRanks(1, [&](Communicator& c) {
    LedgerRun run(c, {.epoch = kEpoch + 1}, before);
    run.Visit({0, 1, 2, 3, 4, 5}, 6);
    const EpochHistory& history = run.ledger.history();
    ASSERT_EQ(history.epochs.size(), 2u);
    EXPECT_FALSE(history.epochs[0].is_complete);
    EXPECT_EQ(history.epochs[0].visits(), 2);
    EXPECT_EQ(history.epochs[1].epoch, kEpoch + 1);
    EXPECT_EQ(history.total.seen, 8);
  });
}

TEST(EpochLedgerTest, ADamagedLedgerBeginsAnew) {
  const std::string log = LogOf([&] {
    RunRanks(1, [&](Communicator& c) {
      EpochLedger ledger(c, 0);
      ledger.Load({{kLedger, R"({"version":1,"total":{}})"}});
      EXPECT_TRUE(ledger.history().empty());
    });
  });
  EXPECT_THAT(log, HasSubstr("ledger of epochs"));
}

TEST(EpochLedgerTest, NeedsAUsableRecord) {
  RunRanks(1, [](Communicator& c) {
    LedgerRun run(c);
    EXPECT_THAT(
        [&] {
          run.Visit({0, 1, 2, 3, 4, 5}, 6, 6);
        },
        ThrowsMessage<DataError>(HasSubstr("epoch 3: no usable record: 0 records seen")));
  });
}

TEST(EpochLedgerTest, AllowsAFewSkippedRecords) {
  EXPECT_NO_THROW(RequireFewSkipped(2, 2));
  EXPECT_THROW(RequireFewSkipped(3, 2), DataError);
}

TEST(EpochHistoryTest, DescribesRecords) {
  EXPECT_EQ(DescribeRecords({.counts = {.seen = 60000}}),
            "60000 records seen, 0 skipped, 0 duplicated");
  EXPECT_EQ(DescribeRecords({.counts = {.seen = 59997, .skipped = {2, 0, 1}}, .duplicated = 4}),
            "59997 records seen, 3 skipped (2 damaged records, 1 bad images), 4 duplicated");
  EXPECT_EQ(DescribeRecords({.counts = {.seen = 9}, .missing = 1}),
            "9 records seen, 0 skipped, 0 duplicated, 1 missing");
}

TEST(EpochHistoryTest, ReadsBackAndForgetsOldEpochs) {
  EpochHistory history;
  for (int64_t epoch = 0; epoch < 1000; ++epoch) {
    history.Add({.epoch = epoch,
                 .records = 1'281'167,
                 .counts = {.seen = 1'281'166, .skipped = {0, 1, 0}, .hash = ~uint64_t{0}},
                 .is_complete = true});
  }
  history.current = {.epoch = 1000, .records = 9, .counts = {.seen = 5}, .planned = 2};
  const std::string text = history.ToJson();
  EXPECT_LT(text.size(), 30000u);
  const EpochHistory got = EpochHistory::FromJson(text);
  EXPECT_EQ(got.ToJson(), text);
  EXPECT_EQ(got.epochs.size(), EpochHistory::kMaxEpochs);
  EXPECT_EQ(got.epochs.front().epoch, 900);
  EXPECT_EQ(got.total.epochs, 1000);
  EXPECT_EQ(got.total.skipped, 1000);
  EXPECT_EQ(got.current->planned, 2);
}

TEST(EpochHistoryTest, RefusesDamage) {
  EpochHistory history;
  history.Add({.epoch = 1, .records = 5, .counts = {.seen = 5}});
  const std::string good = history.ToJson();
  for (const auto& [from, to] : {std::pair{"\"seen\":5", "\"seen\":-5"},
                                 {"\"seen\":5", "\"seen\":\"5\""},
                                 {"\"hash\":\"0", "\"hash\":\"x"},
                                 {"[0,0,0]", "[0,0]"},
                                 {"\"version\":1", "\"version\":2"}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos) << from;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    EXPECT_THROW(EpochHistory::FromJson(bad), DataError) << bad;
  }
  EXPECT_THROW(EpochHistory::FromJson(good.substr(0, good.size() / 2)), DataError);
}

}  // namespace
}  // namespace carole::train
