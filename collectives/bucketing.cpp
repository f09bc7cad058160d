#include "collectives/bucketing.h"

#include <string_view>

#include "src/core/check.h"
#include "src/core/hash.h"

namespace carole::collectives {

std::vector<Bucket> PlanBuckets(std::span<const Range> parameters, size_t element_bytes,
                                const BucketOptions& options) {
  std::vector<Bucket> buckets;
  size_t end = 0;
  bool is_open = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Range& p = parameters[i];
    CAROLE_CHECK(p.offset >= end, "parameter {} begins at {}, before {} where the last one ends", i,
                 p.offset, end);
    end = p.offset + p.count;
    if (!is_open) {
      buckets.push_back({.first = static_cast<int>(i), .num = 0, .range = {.offset = p.offset}});
    }
    Bucket& bucket = buckets.back();
    ++bucket.num;
    bucket.range.count = end - bucket.range.offset;
    const size_t limit = buckets.size() == 1 ? options.first_bucket_bytes : options.bucket_bytes;
    is_open = bucket.range.count * element_bytes < limit;
  }
  return buckets;
}

uint64_t HashOfPlan(std::span<const Bucket> buckets) {
  uint64_t hash = kFnvOffset;
  for (const Bucket& b : buckets) {
    for (uint64_t value : {static_cast<uint64_t>(b.num), static_cast<uint64_t>(b.range.offset),
                           static_cast<uint64_t>(b.range.count)}) {
      hash = Fnv1a64({reinterpret_cast<const char*>(&value), sizeof(value)}, hash);
    }
  }
  return hash;
}

}  // namespace carole::collectives
