#include "src/train/integrity/rank_faults.h"

#include <gtest/gtest.h>

namespace carole::train {
namespace {

TEST(RankFaultsTest, ASecondFaultWithinTheWindowIsReported) {
  RankFaults faults;
  EXPECT_EQ(faults.Record(1, 50), std::nullopt);
  EXPECT_EQ(faults.Record(1, 50 + RankFaults::kWindow - 1), 50);
}

TEST(RankFaultsTest, AFaultIsForgottenAfterTheWindow) {
  RankFaults faults;
  EXPECT_EQ(faults.Record(1, 50), std::nullopt);
  EXPECT_EQ(faults.Record(1, 50 + RankFaults::kWindow), std::nullopt);
  EXPECT_EQ(faults.Record(1, 51 + RankFaults::kWindow), 50 + RankFaults::kWindow);
}

TEST(RankFaultsTest, RanksAreSeparate) {
  RankFaults faults;
  EXPECT_EQ(faults.Record(0, 5), std::nullopt);
  EXPECT_EQ(faults.Record(2, 5), std::nullopt);
  EXPECT_EQ(faults.Record(2, 5), 5);
}

}  // namespace
}  // namespace carole::train
