#include "collectives/wire_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "tests/support/emulated_device.h"

namespace carole::collectives {
namespace {

using carole::testing::EmulatedDevice;
using carole::testing::EmulatedDeviceMemory;
using carole::testing::RunRanks;

constexpr double kNeverFast = std::numeric_limits<double>::infinity();

// Returns whether a sum of gradients is rounded.
bool Rounds(FullCommunicator& c) {
  std::vector<float> data(1000, 1 + 0x1p-12F);
  c.AllReduce(data, {.what = "gradients", .may_round = true});
  return data[0] == 2;
}

struct Case {
  double fast_gb_per_s;
  int ranks_per_host;
  DType want;
};
constexpr Case kCases[] = {
    {.fast_gb_per_s = kNeverFast, .ranks_per_host = 1, .want = DType::kBF16},
    {.fast_gb_per_s = 1e-9, .ranks_per_host = 1, .want = DType::kF32},
    {.fast_gb_per_s = kNeverFast, .ranks_per_host = 2, .want = DType::kF32},
};

TEST(WireChoice, IsBf16IfTheNetworkBetweenHostsIsSlow) {
  for (const Case& row : kCases) {
    RunRanks(2,
             [&row](FullCommunicator& c) {
               EXPECT_FALSE(Rounds(c)) << "before the choice";
               EXPECT_EQ(ChooseWireDtype(c, nullptr, {.for_hosts = row.fast_gb_per_s}), row.want);
               EXPECT_EQ(Rounds(c), row.want == DType::kBF16);
             },
             {.all_reduce = AllReduceAlgorithm::kRing,
              .wire_dtype = std::nullopt,
              .ranks_per_host = row.ranks_per_host});
  }
}

TEST(WireChoice, IsFp32IfTheAlgorithmAlwaysSendsIt) {
  RunRanks(
      2,
      [](FullCommunicator& c) {
        EXPECT_EQ(ChooseWireDtype(c, nullptr, {.for_hosts = kNeverFast}), DType::kF32);
      },
      {.all_reduce = AllReduceAlgorithm::kTree, .wire_dtype = std::nullopt, .ranks_per_host = 1});
}

TEST(WireChoice, MeasuresDevices) {
  for (const Case& row : kCases) {
    RunRanks(2,
             [&row](FullCommunicator& c) {
               EmulatedDevice device(c, kMeasuredBytes / sizeof(float));
               EmulatedDeviceMemory memory(device, kMeasuredBytes);
               EXPECT_EQ(ChooseWireDtype(c, &memory, {.for_devices = row.fast_gb_per_s}), row.want);
               device.Launch([](std::span<float> v) { std::ranges::fill(v, 1 + 0x1p-12F); });
               c.AllReduce(device.values(), {.what = "gradients", .may_round = true});
               EXPECT_EQ(device.Fetch()[0] == 2, row.want == DType::kBF16);
             },
             {.wire_dtype = std::nullopt, .ranks_per_host = row.ranks_per_host});
  }
}

}  // namespace
}  // namespace carole::collectives
