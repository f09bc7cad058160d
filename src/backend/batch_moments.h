// Two numbers for each channel of a batch norm, and how many pixels are behind them: the message
// that ranks sum where statistics are those of all ranks' rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "src/backend/backend.h"
#include "src/core/check.h"

namespace carole {

// A view of Size(channels) doubles.
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

// first: mean, second: sum of squared deviations from it, of this rank's pixels; afterwards of all
// ranks' pixels. The sums of x and x^2 that travel lose nothing that fp32 has, since they are
// doubles: what cancels is (mean / deviation)^2 * 1e-16.
inline void JoinMomentsOfRanks(const RunContext& context, const ChannelSums& moments) {
  const double mine = moments.count();
  for (int64_t c = 0; c < moments.channels(); ++c) {
    const double mean = moments.first(c);
    moments.first(c) = mine * mean;
    moments.second(c) += mine * mean * mean;
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
