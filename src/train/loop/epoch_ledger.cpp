#include "src/train/loop/epoch_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {
namespace {

io::EpochCounts SumOverRanks(const io::EpochCounts& mine, collectives::Communicator& communicator) {
  io::EpochCounts sum;
  for (const io::EpochCounts& counts :
       AllGather(communicator, mine, {.what = "records of the epoch"}))
    sum.Add(counts);
  return sum;
}

}  // namespace

std::string DescribeCounts(const io::EpochCounts& counts) {
  constexpr const char* kFaults[] = {"damaged records", "bad examples", "bad images"};
  std::string why;
  for (int fault = 0; fault < io::kNumRecordFaults; ++fault) {
    if (counts.skipped[fault] == 0) continue;
    why += fmt::format("{}{} {}", why.empty() ? " (" : ", ", counts.skipped[fault], kFaults[fault]);
  }
  if (!why.empty()) why += ")";
  return fmt::format("{} records seen, {} skipped{}, 0 duplicated", counts.seen,
                     counts.num_skipped(), why);
}

void RequireFewSkipped(int64_t skipped, int64_t max_bad_records) {
  if (skipped <= max_bad_records) return;
  throw DataError(
      fmt::format("[data] too many bad records: got {} over all ranks, want at most {} ({}); "
                  "see the warnings above, or run carole dataset verify",
                  skipped, max_bad_records, Option("max_bad_records")));
}

void EpochLedger::Open(const io::BatchSource& source, const RunState& start) {
  source_ = &source;
  start_ = start;
}

void EpochLedger::BeginBatch(io::Batch& batch, int64_t step) const {
  if (max_bad_records_ > 0) {
    CountValidSamples(batch, step);
  } else {
    batch.all_skipped = CountsBefore(batch.epoch).skipped;
  }
}

void EpochLedger::EndBatch(const io::Batch& batch, RunState& state) const {
  state.epoch = batch.next_epoch;
  state.position = batch.next_position;
  const bool is_last_of_epoch = batch.next_epoch != batch.epoch;
  state.skipped = is_last_of_epoch ? io::SkippedRecords{} : batch.all_skipped;
  if (is_last_of_epoch) EndEpoch(batch);
}

// Returns the records of this epoch that an earlier run consumed, before the source was made.
io::EpochCounts EpochLedger::CountsBefore(int64_t epoch) const {
  if (epoch != start_.epoch) return {};
  io::EpochCounts counts{.skipped = start_.skipped};
  counts.seen = start_.position - counts.num_skipped();
  return counts;
}

void EpochLedger::CountValidSamples(io::Batch& batch, int64_t step) const {
  struct Counts {
    int64_t valid;  // of the batch
    io::EpochCounts epoch;
  };
  const Counts mine{batch.valid, batch.counts};
  io::EpochCounts all = CountsBefore(batch.epoch);
  int64_t valid = 0;
  batch.max_valid = 0;
  for (const Counts& rank :
       AllGather(communicator_, mine, {.what = "valid samples", .step = step})) {
    valid += rank.valid;
    batch.max_valid = std::max(batch.max_valid, rank.valid);
    all.Add(rank.epoch);
  }
  batch.global_valid = std::max<int64_t>(1, valid);
  batch.all_skipped = all.skipped;
  RequireFewSkipped(all.num_skipped(), max_bad_records_);
}

// Checks and logs the counts of the epoch that ends with the batch `last`.
void EpochLedger::EndEpoch(const io::Batch& last) const {
  const io::EpochCounts expected = source_->ExpectedCounts(last.epoch);
  if (expected.seen == 0) return;
  io::EpochCounts counts = SumOverRanks(last.counts, communicator_);
  const int64_t visited = counts.seen + counts.num_skipped();
  CAROLE_CHECK(visited == expected.seen && counts.hash == expected.hash,
               "epoch {}: the ranks did not see each record once: {} of {} records, hash {:016x}, "
               "want {:016x}",
               last.epoch, visited, expected.seen, counts.hash, expected.hash);
  counts.Add(CountsBefore(last.epoch));
  if (counts.seen == 0) {
    throw DataError(fmt::format("[data] epoch {}: no usable record: {}; see the warnings above",
                                last.epoch, DescribeCounts(counts)));
  }
  if (communicator_.rank() == 0)
    LogInfo("train", "epoch {}: {}", last.epoch, DescribeCounts(counts));
}

}  // namespace carole::train
