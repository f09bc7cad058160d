#include "collectives/reducer/bucketing.h"

#include <algorithm>
#include <limits>

#include "src/core/check.h"
#include "src/core/hash.h"

namespace carole::collectives {
namespace {

double TransferMs(size_t elements, size_t element_bytes, const BucketTimes& times) {
  return times.latency_ms + static_cast<double>(elements * element_bytes) * times.ms_per_byte;
}

// Returns the parameters [first, end) as a bucket.
Bucket Join(std::span<const Range> parameters, size_t first, size_t end) {
  const Range& last = parameters[end - 1];
  const size_t begin = parameters[first].offset;
  return {.first = static_cast<int>(first),
          .num = static_cast<int>(end - first),
          .range = {.offset = begin, .count = last.offset + last.count - begin}};
}

// Divides the last bucket if it has more than `most` elements.
void DivideLast(std::span<const Range> parameters, size_t most, std::vector<Bucket>& buckets) {
  if (buckets.empty()) return;
  const Bucket last = buckets.back();
  if (last.num == 1 || last.range.count <= most) return;
  const auto begin = static_cast<size_t>(last.first);
  const size_t end = last.range.offset + last.range.count;
  size_t first = parameters.size() - 1;
  while (first > begin + 1 && end - parameters[first - 1].offset <= most) --first;
  buckets.back() = Join(parameters, begin, first);
  buckets.push_back(Join(parameters, first, parameters.size()));
}

}  // namespace

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
  if (options.last_bucket_bytes > 0)
    DivideLast(parameters, options.last_bucket_bytes / element_bytes, buckets);
  return buckets;
}

size_t BucketBytesFor(double latency_us, double us_per_byte) {
  constexpr double kShare = 0.05;
  constexpr double kLargest = kMaxBucketBytes;
  const double transfer_us = latency_us * (1 - kShare) / kShare;
  if (transfer_us >= kLargest * us_per_byte) return kMaxBucketBytes;
  return std::max(kMinBucketBytes, static_cast<size_t>(transfer_us / us_per_byte));
}

std::vector<Bucket> PlanBucketsByTime(std::span<const Range> parameters, size_t element_bytes,
                                      const BucketTimes& times) {
  const size_t n = parameters.size();
  CAROLE_CHECK_EQ(times.ready_ms.size(), n, "times of parameters");
  const auto transfer = [&](size_t first, size_t end) {
    return TransferMs(Join(parameters, first, end).range.count, element_bytes, times);
  };
  // finish[j] is the earliest time at which the sums of the first j parameters can be complete, and
  // ready[j] is the time at which all their gradients are final.
  std::vector<double> finish(n + 1, std::numeric_limits<double>::infinity()), ready(n + 1, 0);
  finish[0] = 0;
  for (size_t j = 1; j <= n; ++j) {
    ready[j] = std::max(ready[j - 1], times.ready_ms[j - 1]);
    for (size_t i = 0; i < j; ++i)
      finish[j] = std::min(finish[j], std::max(finish[i], ready[j]) + transfer(i, j));
  }
  // Builds buckets from the end. The largest last bucket that meets the deadline leaves the fewest
  // parameters to the others, and still enough time for them.
  std::vector<Bucket> buckets;
  double deadline = finish[n];
  for (size_t j = n; j > 0; j = static_cast<size_t>(buckets.back().first)) {
    const double rounding = 1e-9 * deadline;
    size_t i = 0;
    while (i + 1 < j && std::max(finish[i], ready[j]) + transfer(i, j) > deadline + rounding) ++i;
    buckets.push_back(Join(parameters, i, j));
    deadline -= transfer(i, j);
  }
  std::reverse(buckets.begin(), buckets.end());
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
