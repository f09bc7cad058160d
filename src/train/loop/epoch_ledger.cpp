// How the records of an epoch are counted.
//
// The task. Show that all ranks together visit each record once per epoch, also if the epoch is
// spread over several runs and several numbers of ranks. Count exactly what is wrong otherwise. It
// must cost nothing: no collective for each step, and few bytes in a checkpoint.
//
// Two means. Each rank keeps (1) three sums: how many records it has used, how many it has
// skipped for which reason, and the sum of a 64-bit hash of each record's shard and offset. Sums of
// ranks and of runs can be added, and their order does not matter. Each rank also keeps (2) a set
// of the records that it has visited, one bit for each record of the data (160 KB for ImageNet).
//
// At the end of an epoch the ranks gather their sums. If number and hash are those of the data, and
// no rank has visited a record twice, the records are right: other records with the same hash have
// a probability of 2^-64. Only if something differs do the ranks gather their sets, piece by piece.
// Their union gives the exact number of duplicated and of missing records.
//
// Example: records 0 to 5 on two ranks. Rank 0 visits 3 0 5, rank 1 visits 1 4 1 instead of 1 4 2.
// The number 6 is right, the hash is not. The union has 5 records, so 6 - 5 = 1 visit is
// duplicated, and 6 - 5 = 1 record is missing: number 2.
//
// Resume. A checkpoint stores the sums of the epoch in progress, but no set. The order of an epoch
// follows from its seed. So the new run knows which records should have been visited before its
// first position. It compares their number and hash with the stored ones:
//
//   stored sums                     then
//   equal                           The stored sums are added to those of the new run. At the end
//                                   of the epoch the sum of both must be that of the data.
//   fewer records, or none at all   The checkpoint was written without the other ranks' sums, by
//                                   the survivors of a lost rank, or by an older version. The
//                                   missing part is taken as planned, and counted as such.
//   as many or more records, but    A warning says so, and another one at the end of the epoch. The
//   another hash                    data has changed, or the earlier run was wrong. The weights are
//                                   good in any case, so training goes on.
//
// A record that this run's own source misses or repeats is a bug and ends the run.
#include "src/train/loop/epoch_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {

bool RecordSet::Add(int64_t record) {
  const auto word = static_cast<size_t>(record / kBits);
  if (record < 0 || word >= words_.size()) return false;
  const uint64_t bit = uint64_t{1} << (record % kBits);
  return (std::exchange(words_[word], words_[word] | bit) & bit) == 0;
}

void RequireFewSkipped(int64_t skipped, int64_t max_bad_records) {
  if (skipped <= max_bad_records) return;
  throw DataError(
      fmt::format("[data] too many bad records: got {} over all ranks, want at most {} ({}); "
                  "see the warnings above, or run carole dataset verify",
                  skipped, max_bad_records, Option("max_bad_records")));
}

void EpochLedger::Load(const std::map<std::string, std::string>& attributes) {
  const auto found = attributes.find(kLedger);
  if (found == attributes.end()) return;
  try {
    history_ = EpochHistory::FromJson(found->second);
  } catch (const DataError& error) {
    LogWarning("train", "{}; a new ledger begins", WithoutTag(error.what()));
  }
}

void EpochLedger::Share(const RunState& state) {
  std::string text = history_.ToJson();
  auto size = static_cast<int64_t>(text.size());
  communicator_.Broadcast(std::as_writable_bytes(std::span(&size, 1)), 0, {.what = "ledger size"});
  text.resize(static_cast<size_t>(size));
  communicator_.Broadcast(std::as_writable_bytes(std::span(text)), 0, {.what = "ledger"});
  history_ = EpochHistory::FromJson(text);
  if (!history_.current || history_.current->epoch == state.epoch) return;
  history_.Add(*std::exchange(history_.current, std::nullopt));
}

void EpochLedger::Open(const io::BatchSource& source, const RunState& start) {
  source_ = &source;
  start_ = start;
  epoch_ = start.epoch;
  mine_ = {};
  // The source counts what is left of its first epoch, and all records of each later one.
  all_records_ = source.ExpectedCounts(start.epoch + 1);
  before_ = {.epoch = start.epoch, .records = all_records_.seen};
  if (!counts_records()) return;
  visited_.Reset(all_records_.seen);
  if (start.position == 0) return;
  const io::EpochCounts rest = source.ExpectedCounts(start.epoch);
  io::EpochCounts plan{.skipped = start.skipped, .hash = all_records_.hash - rest.hash};
  plan.seen = start.position - plan.num_skipped();
  ContinueFrom(history_.current.value_or(before_), plan);
}

// Sets before_: continues the epoch `saved`, in which the records of `plan` should have been
// visited.
void EpochLedger::ContinueFrom(EpochRecords saved, const io::EpochCounts& plan) {
  const int64_t want = plan.seen + plan.num_skipped();
  saved.records = all_records_.seen;
  if (saved.visits() < want) {
    saved.planned += want - saved.visits();
    saved.counts = plan;
    if (is_chief()) {
      LogInfo("train", "epoch {} continues: {} of its first {} records are counted as planned",
              saved.epoch, saved.planned, want);
    }
  } else if (saved.visits() == want && saved.counts.hash == plan.hash) {
    if (is_chief()) {
      LogInfo("train", "epoch {} continues: its first {} records were seen once", saved.epoch,
              want);
    }
  } else if (is_chief()) {
    LogWarning("train",
               "epoch {}: other records than planned before the resume: got {} with hash {:016x}, "
               "want {} with hash {:016x}; was the data changed? The weights are good",
               saved.epoch, saved.visits(), saved.counts.hash, want, plan.hash);
  }
  before_ = saved;
}

void EpochLedger::BeginBatch(io::Batch& batch, int64_t step) const {
  if (max_bad_records_ > 0) {
    CountValidSamples(batch, step);
  } else {
    batch.all_skipped = CountsBefore(batch.epoch).skipped;
  }
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

bool EpochLedger::EndBatch(const io::Batch& batch, RunState& state) {
  state.epoch = batch.next_epoch;
  state.position = batch.next_position;
  const bool is_last_of_epoch = batch.next_epoch != batch.epoch;
  state.skipped = is_last_of_epoch ? io::SkippedRecords{} : batch.all_skipped;
  mine_.counts = batch.counts;
  for (const int64_t record : batch.records) mine_.duplicated += visited_.Add(record) ? 0 : 1;
  if (is_last_of_epoch && counts_records()) EndEpoch(batch.epoch);
  if (is_last_of_epoch) {
    epoch_ = batch.next_epoch;
    mine_ = {};
    visited_.Reset(all_records_.seen);
    before_ = {.epoch = epoch_, .records = all_records_.seen};
  }
  return is_last_of_epoch;
}

// Returns the epoch so far, over all ranks and runs. Collective.
EpochRecords EpochLedger::Sum(int64_t step) const {
  EpochRecords sum = before_;
  for (const RankCounts& rank :
       AllGather(communicator_, mine_, {.what = "records of the epoch", .step = step})) {
    sum.counts.Add(rank.counts);
    sum.duplicated += rank.duplicated;
  }
  return sum;
}

void EpochLedger::Collect(int64_t step) {
  if (!counts_records()) return;
  EpochRecords sum = Sum(step);
  history_.current.reset();
  if (sum.visits() > 0) history_.current = sum;
}

EpochHistory EpochLedger::AfterPlanned(const io::Batch& batch) const {
  if (!counts_records()) return history_;
  EpochHistory history = history_;
  EpochRecords epoch = before_;
  if (history.current && history.current->visits() > before_.visits()) epoch = *history.current;
  history.current.reset();
  if (const int64_t missing = epoch.records - epoch.visits(); missing > 0) {
    epoch.planned += missing;
    epoch.counts = {.skipped = batch.all_skipped, .hash = all_records_.hash};
    epoch.counts.seen = epoch.records - epoch.counts.num_skipped();
  }
  epoch.is_complete = true;
  history.Add(epoch);
  return history;
}

// Checks and logs the counts of the epoch whose last batch has ended.
void EpochLedger::EndEpoch(int64_t epoch) {
  EpochRecords all = Sum(0);
  const io::EpochCounts expected = source_->ExpectedCounts(epoch);
  io::EpochCounts own{.seen = all.counts.seen - before_.counts.seen,
                      .hash = all.counts.hash - before_.counts.hash};
  for (size_t fault = 0; fault < own.skipped.size(); ++fault)
    own.skipped[fault] = all.counts.skipped[fault] - before_.counts.skipped[fault];
  const int64_t visits = own.seen + own.num_skipped();
  if (visits != expected.seen || own.hash != expected.hash || all.duplicated > before_.duplicated)
    ThrowWrongRecords(epoch, own);
  all.duplicated += std::max<int64_t>(0, all.visits() - all.duplicated - all.records);
  all.missing = std::max<int64_t>(0, all.records - all.visits() + all.duplicated);
  all.is_complete = true;
  if (all.counts.seen == 0) {
    throw DataError(fmt::format("[data] epoch {}: no usable record: {}; see the warnings above",
                                epoch, DescribeRecords(all)));
  }
  history_.current.reset();
  history_.Add(all);
  if (!is_chief()) return;
  LogInfo("train", "epoch {}: {}", epoch, DescribeRecords(all));
  if (all.visits() == all_records_.seen && all.counts.hash == all_records_.hash) return;
  LogWarning("train",
             "epoch {}: not each record was seen once before and after the resume: got {} with "
             "hash {:016x}, want {} with hash {:016x}; the weights are good",
             epoch, all.visits(), all.counts.hash, all_records_.seen, all_records_.hash);
}

// Counts over all ranks which records were missed or repeated since the source was made, and throws
// InternalError. `got` are the sums of all ranks. Collective.
void EpochLedger::ThrowWrongRecords(int64_t epoch, const io::EpochCounts& got) const {
  constexpr size_t kPiece = 1 << 13;  // words that each rank sends at a time
  const std::span<const uint64_t> words(visited_.words());
  int64_t distinct = 0;
  for (size_t begin = 0; begin < words.size(); begin += kPiece) {
    const auto piece = words.subspan(begin, std::min(kPiece, words.size() - begin));
    const std::vector<uint64_t> all =
        collectives::AllGatherValues(communicator_, piece, {.what = "visited records"});
    for (size_t i = 0; i < piece.size(); ++i) {
      uint64_t any = 0;
      for (size_t at = i; at < all.size(); at += piece.size()) any |= all[at];
      distinct += std::popcount(any);
    }
  }
  const io::EpochCounts expected = source_->ExpectedCounts(epoch);
  const int64_t visits = got.seen + got.num_skipped();
  throw InternalError(fmt::format(
      "[train] epoch {}: the ranks did not see each record once: got {} of {} records, {} "
      "duplicated, {} missing, hash {:016x}, want {:016x}",
      epoch, visits, expected.seen, std::max<int64_t>(0, visits - distinct),
      std::max<int64_t>(0, expected.seen - distinct), got.hash, expected.hash));
}

}  // namespace carole::train
