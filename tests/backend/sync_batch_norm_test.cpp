// Batch norm, also folded, with the statistics of all ranks, on the CPU backends. tests/streams has
// the same test for GPUs.
#include <gmock/gmock.h>

#include <barrier>
#include <thread>

#include "src/backend/backend.h"
#include "tests/support/norm_of_ranks.h"

namespace carole::testing {
namespace {

constexpr int kSize = 3;
constexpr int64_t kRows = 2;  // of each rank

// Sums values over threads, in the order of ranks.
class ThreadRanks {
 public:
  void Sum(int rank, std::span<double> values) {
    values_[rank].assign(values.begin(), values.end());
    barrier_.arrive_and_wait();
    std::ranges::fill(values, 0);
    for (const auto& of_rank : values_)
      std::ranges::transform(values, of_rank, values.begin(), std::plus<>());
    barrier_.arrive_and_wait();
  }

 private:
  std::vector<double> values_[kSize];
  std::barrier<> barrier_{kSize};
};

// Expects that the ranks compute what one rank does with the batch of all of them. The last rank
// has `num_invalid` invalid rows.
void ExpectSameAsOneRank(const Backend& backend, RunNormFunction run, int64_t num_invalid) {
  Elements x = RandomElements(kSize * kRows * kNormRowElements, 1);
  for (double& value : x) value += 5;  // so that means are far from 0
  const Elements dy = RandomElements(kSize * kRows * kNormRowElements, 2);
  const Norm whole = run(*MakeReferenceBackend(1), {.valid_rows = kSize * kRows - num_invalid},
                         kSize * kRows, x, dy);
  ThreadRanks ranks;
  std::vector<Norm> parts(kSize);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      const int64_t valid = rank + 1 < kSize ? kRows : kRows - num_invalid;
      const RunContext context{
          .valid_rows = valid > 0 ? valid : RunContext::kNoRows,
          .sum_over_ranks = [&](std::span<double> values) { ranks.Sum(rank, values); }};
      parts[rank] =
          run(backend, context, kRows, PartOfRank(x, rank, kRows), PartOfRank(dy, rank, kRows));
    });
  }
  threads.clear();
  ExpectSameNorm(parts, whole, kRows);
}

TEST(SyncBatchNorm, RanksTogetherComputeWhatOneRankDoes) {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(MakeReferenceBackend(1));
  if (OneDnnAvailable()) backends.push_back(MakeOneDnnBackend(1));
  for (const auto& backend : backends) {
    SCOPED_TRACE(backend->name());
    for (const RunNormFunction run : {RunBatchNorm, RunFoldedBatchNorm}) {
      for (const int64_t num_invalid : {int64_t{0}, int64_t{1}, kRows})
        ExpectSameAsOneRank(*backend, run, num_invalid);
    }
  }
}

}  // namespace
}  // namespace carole::testing
