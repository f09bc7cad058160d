#include "src/train/loop/device_memory.h"

#include <gtest/gtest.h>

namespace carole::train {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

TEST(DeviceMemory, NamesEachRankOrTheExtremes) {
  std::vector<MemoryUse> ranks;
  EXPECT_EQ(DescribeDeviceMemory(ranks), "");
  ranks.push_back({.used_bytes = 3 * kGiB / 2, .total_bytes = 80 * kGiB});
  EXPECT_EQ(DescribeDeviceMemory(ranks), "rank 0: 1.5 of 80.0 GiB");
  ranks.push_back({.used_bytes = 2 * kGiB, .total_bytes = 80 * kGiB});
  EXPECT_EQ(DescribeDeviceMemory(ranks), "rank 0: 1.5 of 80.0 GiB, rank 1: 2.0 of 80.0 GiB");
  ranks.resize(9, {.used_bytes = 2 * kGiB, .total_bytes = 80 * kGiB});
  ranks[5].used_bytes = 3 * kGiB;
  EXPECT_EQ(DescribeDeviceMemory(ranks),
            "least rank 0: 1.5 of 80.0 GiB, most rank 5: 3.0 of 80.0 GiB");
}

}  // namespace
}  // namespace carole::train
