#include "collectives/auto_choice.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "src/core/check.h"
#include "src/core/log.h"

namespace carole::collectives {

namespace {

constexpr size_t kMostBytes = 4 << 20;

int SizeClass(size_t bytes) { return std::bit_width(std::min(bytes, kMostBytes)); }

// Seconds of the fastest of a few sums of zeros.
template <typename T, typename Sum>
double Time(Exchange& x, size_t count, Sum sum) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTries = 3;  // beside the first, which opens connections
  Buffer zeros(count * sizeof(T));
  const std::span<T> range(reinterpret_cast<T*>(zeros.data()), count);
  double fastest = std::numeric_limits<double>::max();
  for (int i = 0; i <= kTries; ++i) {
    const auto start = Clock::now();
    sum(x, range);
    const std::chrono::duration<double> time = Clock::now() - start;
    if (i > 0) fastest = std::min(fastest, time.count());
  }
  return fastest;
}

}  // namespace

size_t AutoChoice::Find(DType dtype, size_t bytes) const {
  if (candidates_.size() == 1) return candidates_.front();
  const std::lock_guard lock(mutex_);
  const auto found = rows_.find({dtype, SizeClass(bytes)});
  return found == rows_.end() ? kAutoRow : found->second;
}

size_t AutoChoice::Measure(Exchange& x, DType dtype, size_t bytes) {
  const size_t measured_bytes = std::min(bytes, kMostBytes);
  x.peers.clear();
  std::vector<double> mine;
  for (size_t row : candidates_) {
    mine.push_back(dtype == DType::kF64
                       ? Time<double>(x, measured_bytes / sizeof(double), kAllReduce[row].sum_f64)
                       : Time<float>(x, measured_bytes / sizeof(float), kAllReduce[row].sum_f32));
  }
  std::vector<double> all(mine.size() * x.topology.size());
  AllGatherBytes(x, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<double> slowest(mine.size());
  for (size_t i = 0; i < all.size(); ++i) {
    slowest[i % mine.size()] = std::max(slowest[i % mine.size()], all[i]);
  }
  const size_t best = std::ranges::min_element(slowest) - slowest.begin();
  const std::lock_guard lock(mutex_);
  const size_t row = candidates_[best];
  rows_[{dtype, SizeClass(bytes)}] = row;
  if (x.topology.rank == 0) {
    LogInfo("comm", "all_reduce of {} bytes of {}: {}, {:.0f} us here", measured_bytes, Name(dtype),
            kAllReduce[row].name, slowest[best] * 1e6);
  }
  return row;
}

}  // namespace carole::collectives
