// Pure functions that decide which gradients travel together in a bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace carole::collectives {

// Elements [offset, offset + count) of the flat gradient arena.
struct Range {
  size_t offset = 0;
  size_t count = 0;
  bool operator==(const Range&) const = default;
};

struct BucketOptions {
  size_t first_bucket_bytes = 1 << 20;  // small, so that communication starts early in backward
  size_t bucket_bytes = 25 << 20;
  // Small, because backward has ended when the last bucket starts, so that nothing hides its sum.
  size_t last_bucket_bytes = 1 << 20;  // 0: the last bucket is as large as it happens to be
};

// Parameters [first, first + num) in ready order, and the range that contains their gradients.
struct Bucket {
  int first = 0;
  int num = 0;
  Range range;
};

// Plans buckets by size: closes a bucket as soon as it has reached its size. If the last one is
// larger than last_bucket_bytes, divides it: the last parameters that fit into these bytes, but at
// least one of them, become a bucket of their own. `parameters` are in ready order and ascend in
// the arena; alignment gaps between them become part of buckets. Throws InternalError if parameters
// overlap or do not ascend.
std::vector<Bucket> PlanBuckets(std::span<const Range> parameters, size_t element_bytes,
                                const BucketOptions& options = {});

// Returns the bucket size at which latency is 5 % of the time of an all-reduce, at least
// kMinBucketBytes and at most kMaxBucketBytes. Used if the times at which gradients become final
// are not known. Zero `us_per_byte` gives the largest size.
inline constexpr size_t kMinBucketBytes = 1 << 20, kMaxBucketBytes = 25 << 20;
size_t BucketBytesFor(double latency_us, double us_per_byte);

// The measurements that PlanBucketsByTime() uses.
struct BucketTimes {
  std::span<const double> ready_ms;  // by parameter: time in the step when its gradient is final
  double latency_ms = 0;             // all-reduce time of a very small bucket
  double ms_per_byte = 0;
};

// Plans buckets by time. Chooses among all plans (a single bucket included) those in which the last
// sum is complete first. Returns the one of them with the fewest buckets, because each bucket takes
// time from backward, whose core moves the data.
//
// Model: one bucket travels at a time, in order. It starts when its last gradient is final and the
// bucket before is complete. It takes latency_ms + bytes * ms_per_byte. Dynamic programming; O(n^2)
// for n parameters.
std::vector<Bucket> PlanBucketsByTime(std::span<const Range> parameters, size_t element_bytes,
                                      const BucketTimes& times);

// Returns a hash of the plan, which ranks compare to check that they send the same buckets.
uint64_t HashOfPlan(std::span<const Bucket> buckets);

}  // namespace carole::collectives
