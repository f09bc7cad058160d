// AutoChoice: AllReduceAlgorithm::kAuto. Finds the algorithm that is fastest on these hosts for a
// size.
//
// The first all-reduce of each type and each power of two of its bytes measures the candidates, on
// all ranks together. The one whose slowest rank was fastest is kept. All ranks decide from the
// same numbers, so they choose the same; the comparison of headers checks the choice as well. On
// one host "shared_memory" is the only candidate, so nothing is measured there.
//
// Rank 0 keeps the choices in a file. So the next job on hosts with the same numbers of ranks does
// not measure again, and adds in the same order.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "src/core/files/tuning_cache.h"

namespace carole::collectives {

class AutoChoice {
 public:
  // `path` is the file that keeps the choices (src/core/files/tuning_cache.h); "" keeps none.
  AutoChoice(const CollectiveContext& context, std::string path);

  // Returns the algorithm for all-reduces of `bytes` bytes, or kAuto if it is to be measured first.
  // `dtype` is the type in which they travel between hosts (kBF16: fp32 travels as bf16). Callable
  // from any thread.
  AllReduceAlgorithm Find(DType dtype, size_t bytes) const;

  // Finds the algorithm and keeps it: a choice from the file, or the fastest in a measurement that
  // honors context.wire. Collective; no other operation may run. Needs memory for one more range of
  // this size, up to 4 MB. Larger ranges share the choice for 4 MB.
  AllReduceAlgorithm Choose(CollectiveContext& context, DType dtype, size_t bytes);

 private:
  AllReduceAlgorithm FindInCache(const std::string& task) const;
  AllReduceAlgorithm Measure(CollectiveContext& context, DType dtype, size_t bytes,
                             const std::string& task);

  const std::vector<AllReduceAlgorithm> candidates_;
  std::optional<TuningCache> cache_;  // on rank 0, if there is more than one candidate
  mutable std::mutex mutex_;
  // By type on the wire and power of two of bytes.
  std::map<std::pair<DType, size_t>, AllReduceAlgorithm> choices_;
};

}  // namespace carole::collectives
