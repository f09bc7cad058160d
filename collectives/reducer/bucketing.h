// Pure: which parameters' gradients travel together.
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
  size_t first_bucket_bytes = 1 << 20;  // small: communication starts early in backward
  size_t bucket_bytes = 25 << 20;
};

// Parameters [first, first + num) in ready order, and the one range that holds their gradients.
struct Bucket {
  int first = 0;
  int num = 0;
  Range range;
};

// Closes a bucket as soon as it has reached its size. `parameters` lie in ready order, ascending in
// the arena; gaps between them (alignment) travel along. Throws InternalError when they overlap or
// do not ascend.
std::vector<Bucket> PlanBuckets(std::span<const Range> parameters, size_t element_bytes,
                                const BucketOptions& options = {});

// What PlanBucketsByTime() goes by.
struct BucketTimes {
  std::span<const double> ready_ms;  // when the gradient of each parameter is final, in a step
  double latency_ms = 0;             // of a bucket, however small
  double ms_per_byte = 0;
};

// The fewest buckets of those whose last sum is there first, of all that there are, one for
// everything included, if one bucket travels at a time, in order, each from the moment when its
// last gradient is final: each bucket takes time from backward, whose core moves it. Dynamic
// programming: O(n^2) for n parameters.
std::vector<Bucket> PlanBucketsByTime(std::span<const Range> parameters, size_t element_bytes,
                                      const BucketTimes& times);

// Equal on ranks that will send the same buckets.
uint64_t HashOfPlan(std::span<const Bucket> buckets);

}  // namespace carole::collectives
