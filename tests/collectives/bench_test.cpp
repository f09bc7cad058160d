#include "collectives/bench.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

#include "collectives/known_values.h"
#include "src/core/error.h"
#include "src/core/float16.h"
#include "tests/support/collective_cases.h"
#include "tests/support/emulated_device.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

using collectives::BenchAllReduce;
using collectives::BenchMemory;
using collectives::KnownValues;
using ::testing::HasSubstr;

TEST(Bench, ReturnsOneSampleForEachSize) {
  constexpr auto kRing = collectives::AllReduceAlgorithm::kRing;
  const auto work = [](FullCommunicator& c) {
    const auto samples = BenchAllReduce(c, {.sizes = {4096, 65536}, .steps = 3, .warmup_steps = 1});
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

// All algorithms that fit, for fp32 and for bf16 on the wire, on one host and on several ones.
TEST(Bench, FindsTheSumsOfAllAlgorithmsRight) {
  std::set<std::string_view> checked;
  const auto work = [&](FullCommunicator& c) {
    for (const std::string_view name : collectives::SelectableAllReduceNames()) {
      try {
        c.SetAllReduce(collectives::ParseAllReduce(name));
      } catch (const UsageError&) {
        continue;  // does not fit these hosts
      }
      BenchAllReduce(c, {.sizes = {4, 4096, 1 << 20}, .steps = 2, .warmup_steps = 1});
      if (c.rank() == 0) checked.insert(name);
    }
  };
  for (const DType wire : {DType::kF32, DType::kBF16}) {
    for (const int per_host : {0, 1, 2})
      RunRanks(4, work, {.wire_dtype = wire, .ranks_per_host = per_host});
  }
  EXPECT_THAT(checked, ::testing::ElementsAre("auto", "hierarchical", "hierarchical_tree", "ring",
                                              "shared_memory", "tree"));
}

// Memory of a rank whose all-reduces are disturbed: Finish() follows each of them.
class DisturbedMemory : public BenchMemory {
 public:
  DisturbedMemory(size_t bytes, int disturbed_step, size_t element)
      : range_(bytes / sizeof(float)), step_(disturbed_step), element_(element) {}
  std::span<float> range() override { return range_; }
  void Copy(size_t) override {}
  void Finish() override {
    if (step_-- == 0) range_[element_] += 1;
  }

 private:
  std::vector<float> range_;
  int step_;
  size_t element_;
};

TEST(Bench, AWrongSumOnOneRankInOneStepIsFound) {
  constexpr size_t kElement = 700;
  const auto errors = ErrorsOfRanks(3, [](FullCommunicator& c) {
    DisturbedMemory memory(4096, c.rank() == 1 ? 4 : -1, kElement);
    BenchAllReduce(c, {.sizes = {4096}, .steps = 3, .warmup_steps = 2}, &memory);
  });
  std::vector<float> sums(1024);
  KnownValues(3).FillWithSums(sums);
  const std::string want = fmt::format(
      "all-reduce of 4096 bytes: wrong sum on rank 1 (thread host 0): got {} in element "
      "{}, want {} (1 of 1024 elements are wrong)",
      sums[kElement] + 1, kElement, sums[kElement]);
  EXPECT_THAT(errors, ::testing::Each(HasSubstr(want)));
}

// Device memory that only copies of its stream access.
class DeviceBenchMemory : public BenchMemory {
 public:
  explicit DeviceBenchMemory(EmulatedDevice& device)
      : device_(device), host_(device.values().size()) {}
  std::span<float> range() override { return device_.values(); }
  std::span<float> host_range() override { return host_; }
  void Copy(size_t) override {}
  void Finish() override { device_.stream()->Wait(); }
  void Upload(size_t bytes) override {
    device_.Launch([&](std::span<float> v) { std::memcpy(v.data(), host_.data(), bytes); });
    Finish();
  }
  void Download(size_t bytes) override {
    device_.Launch([&](std::span<float> v) { std::memcpy(host_.data(), v.data(), bytes); });
    Finish();
  }

 private:
  EmulatedDevice& device_;
  std::vector<float> host_;
};

std::vector<std::string> ErrorsOnEmulatedGpus() {
  return ErrorsOfRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 1024);
    DeviceBenchMemory memory(device);
    const auto samples =
        BenchAllReduce(c, {.sizes = {4096}, .steps = 3, .warmup_steps = 1}, &memory);
    Require(samples[0].algorithm == collectives::AllReduceAlgorithm::kNccl, "algorithm");
  });
}

TEST(Bench, AWrongSumOfNcclIsFound) {
  EXPECT_THAT(ErrorsOnEmulatedGpus(), ::testing::Each(""));
  NcclFaults().wrong_sums = true;
  const auto errors = ErrorsOnEmulatedGpus();
  NcclFaults().wrong_sums = false;
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("4096 bytes: wrong sum on rank 0")));
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("in element 512, want")));
}

TEST(KnownValues, AreExactInTheTypesOfTheWire) {
  for (const int ranks : {1, 2, 3, 8, 64, 65, 1000}) {
    std::vector<float> sums(500), added(sums.size()), mine(sums.size());
    const KnownValues values(ranks);
    values.FillWithSums(sums);
    for (int rank = 0; rank < ranks; ++rank) {
      values.Fill(rank, mine);
      for (size_t i = 0; i < sums.size(); ++i) {
        ASSERT_EQ(mine[i], static_cast<float>(Bf16(mine[i]))) << rank << " of " << ranks;
        added[i] += mine[i];
        ASSERT_EQ(added[i], static_cast<float>(Bf16(added[i]))) << rank << " of " << ranks;
        ASSERT_EQ(added[i], static_cast<float>(Fp16(added[i]))) << rank << " of " << ranks;
      }
    }
    EXPECT_EQ(sums, added) << ranks;
    EXPECT_LE(std::ranges::max(sums), collectives::kMaxKnownSum);
  }
}

// A piece from another place or another rank differs in most elements.
TEST(KnownValues, DifferBetweenPlacesAndRanks) {
  constexpr size_t kCount = 4096;
  for (const int ranks : {2, 8, 64}) {
    std::vector<float> sums(2 * kCount), first(kCount), second(kCount);
    const KnownValues values(ranks);
    values.FillWithSums(sums);
    values.Fill(0, first);
    values.Fill(1, second);
    for (const size_t distance : {1, 2, 16, 64, 1024, 4096}) {
      size_t equal = 0;
      for (size_t i = 0; i < kCount; ++i) equal += sums[i] == sums[i + distance] ? 1 : 0;
      EXPECT_LT(equal, kCount / 5) << "distance " << distance << ", " << ranks << " ranks";
    }
    size_t equal = 0;
    for (size_t i = 0; i < kCount; ++i) equal += first[i] == second[i] ? 1 : 0;
    EXPECT_LT(equal, kCount / 3) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace carole::testing
