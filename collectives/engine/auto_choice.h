// The all-reduce algorithm "auto": which row of algorithms.h is fastest here for how many bytes.
//
// For each type and power of two of bytes the first sum measures the rows that may win on these
// hosts, on all ranks together, and the fastest is kept: the one whose slowest rank was fastest.
// All ranks decide from the same numbers, hence alike; the contract compares the choice as well. On
// one host only shared memory may win, so nothing is measured there.
//
// Rank 0 keeps the winners in a file, so that the next job on hosts with as many ranks neither
// measures again nor sums in another order.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "src/core/files/choice_cache.h"

namespace carole::collectives {

class AutoChoice {
 public:
  // `path`: of the file (core/choice_cache.h); "": nothing is kept from job to job.
  AutoChoice(const Exchange& x, std::string path);

  // The row for sums of so many bytes, which travel between hosts as `dtype` (kBF16: fp32 does);
  // kAutoRow when it is to be measured first. Any thread.
  size_t Find(DType dtype, size_t bytes) const;

  // Finds the row and keeps it, for sums as `x.wire` says: the remembered one, or the fastest now.
  // Collective, while no other operation runs; needs memory for one more message of the size, 4 MB
  // at most: beyond, the winner is the same.
  size_t Choose(Exchange& x, DType dtype, size_t bytes);

 private:
  size_t Remembered(const std::string& task) const;
  size_t Measure(Exchange& x, DType dtype, size_t bytes, const std::string& task);

  const std::vector<size_t> candidates_;
  std::optional<ChoiceCache> cache_;  // rank 0's, where there is something to choose
  mutable std::mutex mutex_;
  std::map<std::pair<DType, size_t>, size_t> rows_;  // by what travels and power of two of bytes
};

}  // namespace carole::collectives
