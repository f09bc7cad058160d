#include "collectives/bench.h"

#include <gtest/gtest.h>

#include "tests/support/collective_cases.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

TEST(Bench, ReturnsOneSampleForEachSize) {
  constexpr auto kRing = collectives::AllReduceAlgorithm::kRing;
  const auto work = [](FullCommunicator& c) {
    const auto samples =
        collectives::BenchAllReduce(c, {.sizes = {4096, 65536}, .steps = 3, .warmup_steps = 1});
    Require(samples.size() == 2, "samples");
    for (const auto& s : samples) {
      Require(s.algorithm == kRing && s.ranks == 2, "algorithm and ranks");
      Require(s.time_us_median > 0 && s.copy_gb_per_s > 0, "times");
      const double bus =
          static_cast<double>(s.bytes) / s.time_us_median * 1e-3;  // because 2(p-1)/p is 1
      Require(std::abs(s.bus_gb_per_s - bus) < 1e-6 * bus, "bus bandwidth");
    }
    Require(samples[1].bytes == 65536, "bytes");
  };
  RunRanks(2, work, {.all_reduce = kRing});
}

}  // namespace
}  // namespace carole::testing
