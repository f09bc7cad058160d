#include "src/train/loop/epoch_report.h"

#include <fmt/format.h>

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

void ReportEpoch(const io::Batch& last, const io::BatchSource& source,
                 const io::EpochCounts& before, collectives::Communicator& communicator) {
  const io::EpochCounts expected = source.ExpectedCounts(last.epoch);
  if (expected.seen == 0) return;
  io::EpochCounts counts = SumOverRanks(last.counts, communicator);
  const int64_t visited = counts.seen + counts.num_skipped();
  CAROLE_CHECK(visited == expected.seen && counts.hash == expected.hash,
               "epoch {}: the ranks did not see each record once: {} of {} records, hash {:016x}, "
               "want {:016x}",
               last.epoch, visited, expected.seen, counts.hash, expected.hash);
  counts.Add(before);
  if (counts.seen == 0) {
    throw DataError(fmt::format("[data] epoch {}: no usable record: {}; see the warnings above",
                                last.epoch, DescribeCounts(counts)));
  }
  if (communicator.rank() == 0)
    LogInfo("train", "epoch {}: {}", last.epoch, DescribeCounts(counts));
}

void RequireFewSkipped(int64_t skipped, int64_t max_bad_records) {
  if (skipped <= max_bad_records) return;
  throw DataError(
      fmt::format("[data] too many bad records: got {} over all ranks, want at most {} ({}); "
                  "see the warnings above, or run carole dataset verify",
                  skipped, max_bad_records, Option("max_bad_records")));
}

}  // namespace carole::train
