#include "collectives/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "src/core/check.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

namespace {

// Microseconds of `work`, median over the steps of the slowest rank in each step. Before each step
// every rank writes its whole range, as backward does: else an algorithm would find data in the
// cache of the core that adds it.
double MedianUs(Communicator& c, const BenchOptions& options, std::span<float> range,
                const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> mine;
  for (int i = 0; i < options.warmup_steps + options.steps; ++i) {
    std::ranges::fill(range, static_cast<float>(i));
    c.Barrier({.what = "bench"});
    const auto start = Clock::now();
    work();
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    if (i >= options.warmup_steps) mine.push_back(time.count());
  }
  const auto all = AllGatherValues<double>(c, mine, {.what = "bench"});
  std::vector<double> slowest(mine.size());
  for (size_t i = 0; i < all.size(); ++i) {
    double& step = slowest[i % mine.size()];
    step = std::max(step, all[i]);
  }
  std::ranges::nth_element(slowest, slowest.begin() + slowest.size() / 2);
  return slowest[slowest.size() / 2];
}

}  // namespace

std::vector<AllReduceSample> BenchAllReduce(Communicator& c, const BenchOptions& options) {
  CAROLE_CHECK(options.steps > 0 && !options.sizes.empty(), "nothing to measure");
  const std::string before(c.all_reduce());
  c.SetAllReduce(options.algorithm);
  const auto arena = c.AllocateArena(std::ranges::max(options.sizes));
  Buffer target(arena->size());
  std::vector<AllReduceSample> samples;
  for (size_t bytes : options.sizes) {
    const std::span<float> range(reinterpret_cast<float*>(arena->data()), bytes / sizeof(float));
    const double us = MedianUs(c, options, range,
                               [&] { c.AllReduce(range, {.what = "bench", .may_round = true}); });
    const double copy_us =
        MedianUs(c, options, range, [&] { std::memcpy(target.data(), arena->data(), bytes); });
    const double gb_times_us = static_cast<double>(bytes) * 1e-3;  // bytes / us = MB/s
    samples.push_back({.algorithm = std::string(c.all_reduce_of(bytes)),
                       .ranks = c.size(),
                       .bytes = bytes,
                       .time_us_median = us,
                       .bus_gb_per_s = AllReduceShare(c.size()) * gb_times_us / us,
                       .copy_gb_per_s = gb_times_us / copy_us});
  }
  c.SetAllReduce(before);
  return samples;
}

}  // namespace carole::collectives
