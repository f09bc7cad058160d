// AutoChoice: the all-reduce algorithm "auto". Finds the row of algorithms.h that is fastest on
// these hosts for a size.
//
// The first all-reduce of each type and each power of two of its bytes measures the candidate rows,
// on all ranks together. The row whose slowest rank was fastest is kept. All ranks decide from the
// same numbers, so they choose the same row; the comparison of headers checks the choice as well.
// On one host "shared_memory" is the only candidate, so nothing is measured there.
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

  // Returns the row for all-reduces of `bytes` bytes, or kAutoRow if it is to be measured first.
  // `dtype` is the type in which they travel between hosts (kBF16: fp32 travels as bf16). Callable
  // from any thread.
  size_t Find(DType dtype, size_t bytes) const;

  // Finds the row and keeps it: a choice from the file, or the fastest in a measurement that honors
  // context.wire. Collective; no other operation may run. Needs memory for one more range of this
  // size, up to 4 MB. Larger ranges share the choice for 4 MB.
  size_t Choose(CollectiveContext& context, DType dtype, size_t bytes);

 private:
  size_t FindInCache(const std::string& task) const;
  size_t Measure(CollectiveContext& context, DType dtype, size_t bytes, const std::string& task);

  const std::vector<size_t> candidates_;
  std::optional<TuningCache> cache_;  // on rank 0, if there is more than one candidate
  mutable std::mutex mutex_;
  std::map<std::pair<DType, size_t>, size_t>
      rows_;  // by type on the wire and power of two of bytes
};

}  // namespace carole::collectives
