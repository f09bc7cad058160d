// How much of their start the moving statistics of batch norm still hold.
#include "src/train/state/moving_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/training.h"

namespace carole::train {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(MovingStatistics, SayHowMuchOfTheirStartIsLeft) {
  EXPECT_THAT(DescribeYoungStatistics(0.9997, 200),
              AllOf(HasSubstr("94 % of the start"), HasSubstr("after 200 steps"),
                    HasSubstr("decay 0.9997"), HasSubstr("$(batch_norm_decay)=auto")));
  EXPECT_THAT(DescribeYoungStatistics(0.997, 0), HasSubstr("100 % of the start"));
  EXPECT_THAT(DescribeYoungStatistics(0.8, 4), EndsWith("as training did; train longer"))
      << "auto would be 0.8 again";
  // 0.9997^9985 = 0.05
  EXPECT_NE(DescribeYoungStatistics(0.9997, 9984), "");
  EXPECT_EQ(DescribeYoungStatistics(0.9997, 9986), "");
  EXPECT_EQ(DescribeYoungStatistics(0, 200), "") << "a net without batch norm";
}

TEST(MovingStatistics, DecayFitsTheLengthOfTheRun) {
  EXPECT_DOUBLE_EQ(FitStatisticsDecay(200), 0.9);
  EXPECT_DOUBLE_EQ(FitStatisticsDecay(1'000'000), 0.997);
  EXPECT_DOUBLE_EQ(FitStatisticsDecay(0), 0.99);
  for (const int64_t steps : {20, 100, 1000, 100'000})
    EXPECT_EQ(DescribeYoungStatistics(FitStatisticsDecay(steps), steps), "") << steps;
}

TEST(MovingStatistics, DecayOfAGraphIsThatOfItsBatchNorms) {
  const testing::SmallNet plain(2, false), normalized(2, true);
  EXPECT_EQ(StatisticsDecay(*plain.graph), 0);
  EXPECT_GT(StatisticsDecay(*normalized.graph), 0);
}

}  // namespace
}  // namespace carole::train
