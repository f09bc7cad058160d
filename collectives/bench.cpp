#include "collectives/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "collectives/known_values.h"
#include "src/core/check.h"
#include "src/core/error.h"
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

// The elements of an all-reduce on one rank that have a wrong value.
struct WrongSums {
  size_t count = 0;             // elements that are not the sum
  size_t first = 0;             // the first of them
  float found = 0, wanted = 0;  // its value, and the right one
};

WrongSums Compare(std::span<const float> found, std::span<const float> wanted) {
  WrongSums wrong;
  if (std::memcmp(found.data(), wanted.data(), wanted.size_bytes()) == 0) return wrong;
  for (size_t i = wanted.size(); i-- > 0;) {
    if (found[i] == wanted[i]) continue;
    ++wrong.count;
    wrong.first = i;
  }
  if (wrong.count > 0) {
    wrong.found = found[wrong.first];
    wrong.wanted = wanted[wrong.first];
  }
  return wrong;
}

// Throws CommError on all ranks if an all-reduce did not sum the known values on one of them.
// Collective.
void RequireSums(Communicator& c, std::span<const float> found, std::span<const float> wanted) {
  const auto all = AllGather(c, Compare(found, wanted), {.what = "bench"});
  for (int rank = 0; rank < c.size(); ++rank) {
    const WrongSums& wrong = all[static_cast<size_t>(rank)];
    if (wrong.count == 0) continue;
    throw CommError(fmt::format(
        "[bench] all-reduce of {} bytes: wrong sum on {}: got {} in element {}, want {} ({} of {} "
        "elements are wrong); check the memory, GPU and network of these ranks",
        wanted.size_bytes(), c.NameOf(rank), wrong.found, wrong.first, wrong.wanted, wrong.count,
        wanted.size()));
  }
}

// The steps of a measurement. `prepare` runs before each step and `check` after it; neither counts.
struct BenchSteps {
  std::function<void()> prepare, work, check;
};

// Returns the time of `work` in microseconds: the slowest rank's time in each step, and the median
// of these over the steps. `prepare` writes the rank's whole range, as backward does. Without it,
// an algorithm would find the data in the cache of the core that adds.
double MedianUs(Communicator& c, const BenchOptions& options, const BenchSteps& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> mine;
  for (int i = 0; i < options.warmup_steps + options.steps; ++i) {
    run.prepare();
    c.Barrier({.what = "bench"});
    const auto start = Clock::now();
    run.work();
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    if (i >= options.warmup_steps) mine.push_back(time.count());
    run.check();
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

// Measures one size. Returns all but the algorithm, which "auto" may choose in the meantime.
AllReduceSample Measure(FullCommunicator& c, const BenchOptions& options, BenchMemory& memory,
                        size_t bytes) {
  const KnownValues values(c.size());
  const std::span<float> range = memory.range().first(bytes / sizeof(float));
  const std::span<float> host = memory.host_range().first(range.size());
  std::vector<float> wanted(range.size());
  values.FillWithSums(wanted);
  const auto prepare = [&] {
    values.Fill(c.rank(), host);
    memory.Upload(range.size_bytes());
  };
  const auto check = [&] {
    memory.Download(range.size_bytes());
    RequireSums(c, host, wanted);
  };
  const auto all_reduce = [&] {
    c.AllReduce(range, {.what = "bench", .may_round = true});
    memory.Finish();
  };
  const auto copy_range = [&] {
    memory.Copy(bytes);
    memory.Finish();
  };
  const double us = MedianUs(c, options, {.prepare = prepare, .work = all_reduce, .check = check});
  const double copy_us =
      MedianUs(c, options, {.prepare = prepare, .work = copy_range, .check = [] {}});
  const double gb_times_us = static_cast<double>(bytes) * 1e-3;  // bytes / us = MB/s
  return {.ranks = c.size(),
          .bytes = bytes,
          .time_us_median = us,
          .bus_gb_per_s = AllReduceBusFactor(c.size()) * gb_times_us / us,
          .copy_gb_per_s = gb_times_us / copy_us};
}

}  // namespace

std::vector<AllReduceSample> BenchAllReduce(FullCommunicator& c, const BenchOptions& options,
                                            BenchMemory* device) {
  CAROLE_CHECK(options.steps > 0 && !options.sizes.empty(), "nothing to measure");
  std::optional<HostMemory> host;
  if (device == nullptr) host.emplace(c, std::ranges::max(options.sizes));
  std::vector<AllReduceSample> samples;
  for (size_t bytes : options.sizes) {
    samples.push_back(Measure(c, options, host ? *host : *device, bytes));
    samples.back().algorithm = host ? c.all_reduce_for(bytes) : AllReduceAlgorithm::kNccl;
  }
  return samples;
}

}  // namespace carole::collectives
