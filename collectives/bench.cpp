#include "collectives/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "src/core/check.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

namespace {

class HostMemory : public BenchMemory {
 public:
  HostMemory(Communicator& c, size_t bytes)
      : arena_(c.AllocateArena(bytes)), target_(arena_->size()) {}
  std::span<float> range() override {
    return {reinterpret_cast<float*>(arena_->data()), arena_->size() / sizeof(float)};
  }
  void Copy(size_t bytes) override { std::memcpy(target_.data(), arena_->data(), bytes); }
  void Finish() override {}

 private:
  std::unique_ptr<CommArena> arena_;
  Buffer target_;
};

// Returns the time of `work` in microseconds: the slowest rank's time in each step, and the median
// of these over the steps. `prepare` runs before each step and writes the rank's whole range, as
// backward does. Without it, an algorithm would find the data in the cache of the core that adds.
double MedianUs(Communicator& c, const BenchOptions& options, const std::function<void()>& prepare,
                const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> mine;
  for (int i = 0; i < options.warmup_steps + options.steps; ++i) {
    prepare();
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

std::vector<AllReduceSample> BenchAllReduce(FullCommunicator& c, const BenchOptions& options,
                                            BenchMemory* device) {
  CAROLE_CHECK(options.steps > 0 && !options.sizes.empty(), "nothing to measure");
  std::optional<HostMemory> host;
  if (device == nullptr) host.emplace(c, std::ranges::max(options.sizes));
  BenchMemory& memory = host ? *host : *device;
  std::vector<AllReduceSample> samples;
  for (size_t bytes : options.sizes) {
    const std::span<float> range = memory.range().first(bytes / sizeof(float));
    const auto prepare = [&] {
      if (host) std::ranges::fill(range, 1.0F);
    };
    const double us = MedianUs(c, options, prepare, [&] {
      c.AllReduce(range, {.what = "bench", .may_round = true});
      memory.Finish();
    });
    const double copy_us = MedianUs(c, options, prepare, [&] {
      memory.Copy(bytes);
      memory.Finish();
    });
    const double gb_times_us = static_cast<double>(bytes) * 1e-3;  // bytes / us = MB/s
    samples.push_back({.algorithm = host ? c.all_reduce_for(bytes) : AllReduceAlgorithm::kNccl,
                       .ranks = c.size(),
                       .bytes = bytes,
                       .time_us_median = us,
                       .bus_gb_per_s = AllReduceBusFactor(c.size()) * gb_times_us / us,
                       .copy_gb_per_s = gb_times_us / copy_us});
  }
  return samples;
}

}  // namespace carole::collectives
