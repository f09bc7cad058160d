// The all-reduce algorithm "auto": which row of algorithms.h is fastest here for how many bytes.
//
// For each type and power of two of bytes the first sum measures the rows that may win on these
// hosts, on all ranks together, and the fastest is kept: the one whose slowest rank was fastest.
// All ranks decide from the same numbers, hence alike; the contract compares the choice as well. On
// one host only shared memory may win, so nothing is measured there.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "collectives/algorithms.h"

namespace carole::collectives {

class AutoChoice {
 public:
  explicit AutoChoice(const Topology& topology) : candidates_(AutoCandidates(topology)) {}

  // The row for sums of so many bytes; kAutoRow when it is to be measured first. Any thread.
  size_t Find(DType dtype, size_t bytes) const;

  // Measures and keeps the row. Collective, while no other operation runs; needs memory for one
  // more message of the size, 4 MB at most: beyond, the winner is the same.
  size_t Measure(Exchange& x, DType dtype, size_t bytes);

 private:
  const std::vector<size_t> candidates_;
  mutable std::mutex mutex_;
  std::map<std::pair<DType, int>, size_t> rows_;  // by type and bits of the number of bytes
};

}  // namespace carole::collectives
