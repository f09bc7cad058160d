// The buffer that ranks sum for batch norm over all ranks (RunContext::sum_over_ranks): two sums
// for each channel, and the number of pixels that were summed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "src/backend/backend.h"
#include "src/core/check.h"

namespace carole {

// A view of Size(channels) doubles: all first(c), then all second(c), then count(). Does not own
// the memory.
class ChannelSums {
 public:
  static size_t Size(int64_t channels) { return static_cast<size_t>(2 * channels + 1); }

  ChannelSums(double* values, int64_t channels) : values_(values), channels_(channels) {}

  double& first(int64_t c) const { return values_[c]; }
  double& second(int64_t c) const { return values_[channels_ + c]; }
  double& count() const { return values_[2 * channels_]; }
  int64_t channels() const { return channels_; }
  std::span<double> all() const { return {values_, Size(channels_)}; }

 private:
  double* values_;
  int64_t channels_;
};

// Replaces the moments of this rank's pixels by those of all ranks' pixels. first(c) is the mean,
// second(c) the sum of squared deviations from the mean. Collective: every rank must call it.
//
// The ranks exchange the sums of x and x^2 as doubles. Cancellation costs a relative error of
// (mean / deviation)^2 * 1e-16, which is below the precision of fp32.
inline void CombineMomentsOverRanks(const RunContext& context, const ChannelSums& moments) {
  const double local_count = moments.count();
  for (int64_t c = 0; c < moments.channels(); ++c) {
    const double mean = moments.first(c);
    moments.first(c) = local_count * mean;
    moments.second(c) += local_count * mean * mean;
  }
  context.sum_over_ranks(moments.all());
  const double n = moments.count();
  CAROLE_CHECK(n > 0, "batch norm over {} pixels of all ranks", n);
  for (int64_t c = 0; c < moments.channels(); ++c) {
    const double mean = moments.first(c) / n;
    moments.first(c) = mean;
    moments.second(c) = std::max(0.0, moments.second(c) - n * mean * mean);
  }
}

}  // namespace carole
