// Tests choices by timing without a GPU: the timings are fake.
#include "src/backend/cuda/plans/choose_once.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace carole::cuda {
namespace {

class ChooseOnceTest : public ::testing::Test {
 protected:
  bool Choose(const Device& device, std::optional<bool> timed, bool untimed = false) {
    return ChooseOnce("a task, in pairs", device, untimed, [&] {
      ++timings_;
      return timed;
    });
  }

  TemporaryFolder folder_;
  TuningCache cache_{folder_ / "plans", "a GPU"};
  int timings_ = 0;
};

TEST_F(ChooseOnceTest, TimesOnceAndRemembers) {
  Device device, later;
  device.plan_cache = later.plan_cache = &cache_;
  EXPECT_TRUE(Choose(device, true));
  EXPECT_TRUE(Choose(device, false)) << "remembered by this process";
  EXPECT_TRUE(Choose(later, false)) << "remembered in the file";
  EXPECT_EQ(timings_, 1);
  EXPECT_EQ(cache_.Find("a task, in pairs"), "yes");
}

// Another process may write another answer to the file in the meantime.
TEST_F(ChooseOnceTest, KeepsItsAnswer) {
  Device device;
  device.plan_cache = &cache_;
  EXPECT_FALSE(Choose(device, false));
  cache_.Add("a task, in pairs", "yes");
  EXPECT_FALSE(Choose(device, true));
}

TEST_F(ChooseOnceTest, WithoutMemoryForTimingTheAnswerIsNotStored) {
  Device device, later;
  device.plan_cache = later.plan_cache = &cache_;
  EXPECT_TRUE(Choose(device, std::nullopt, true));
  EXPECT_TRUE(Choose(device, false)) << "a kernel that is made again gets the same answer";
  EXPECT_FALSE(Choose(later, false)) << "the next run measures";
  EXPECT_EQ(timings_, 2);
}

TEST_F(ChooseOnceTest, UntimedOrForcedDoesNotMeasure) {
  Device untimed, forced;
  forced.force_optional_kernels = true;
  EXPECT_FALSE(Choose(untimed, true));
  EXPECT_TRUE(Choose(forced, false));
  EXPECT_EQ(timings_, 0);
}

}  // namespace
}  // namespace carole::cuda
