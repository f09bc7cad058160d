#include "src/monitoring/progress/work_progress.h"

#include <gtest/gtest.h>

namespace carole::monitoring {
namespace {

TEST(WorkProgress, ShowsSpeedAndTimeLeft) {
  WorkState state{.what = "train", .unit = "images", .done = 1200, .total = 5000};
  EXPECT_EQ(FormatWork(state), "train: 1200 of 5000 images");
  state.seconds = 3;
  EXPECT_EQ(FormatWork(state), "train: 1200 of 5000 images, 400 images/s, 0:00:10 left");
  state.done = 5000;
  EXPECT_EQ(FormatWork(state), "train: 5000 of 5000 images, 1667 images/s");
}

// Shards that an earlier build left do not count for the speed of this one.
TEST(WorkProgress, SpeedCountsOnlyNewWork) {
  EXPECT_EQ(FormatWork({.what = "train",
                        .unit = "images",
                        .done = 1'000'000,
                        .total = 1'281'167,
                        .done_before = 900'000,
                        .seconds = 50}),
            "train: 1000000 of 1281167 images, 2000 images/s, 0:02:21 left");
  EXPECT_EQ(FormatWork({.what = "train",
                        .unit = "images",
                        .done = 7,
                        .total = 9,
                        .done_before = 7,
                        .seconds = 1}),
            "train: 7 of 9 images");
}

}  // namespace
}  // namespace carole::monitoring
