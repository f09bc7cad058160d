// The cases of a drill, without running them.
#include "src/commands/drill/drill_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/core/error.h"

namespace carole::commands {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A rank of another host sees the end of a process only at its deadline, which comes too late.
TEST(DrillCases, OnlyARankOfTheSameHostNamesADeadRank) {
  const DrillCase together = MakeDrillCases({.ranks = 2}, {"kill"}, {"backward"}).at(0);
  EXPECT_THAT(together.words, Contains("is gone"));
  EXPECT_THAT(together.expected, HasSubstr("the log names the rank"));

  const DrillJob two_hosts{.ranks = 3, .far_rank = 2, .lone_ranks = {2}};
  const DrillCase alone = MakeDrillCases(two_hosts, {"kill"}, {"backward"}).at(0);
  EXPECT_EQ(alone.injection.rank, 2);
  EXPECT_THAT(alone.words, IsEmpty());
  EXPECT_THAT(alone.expected, Not(HasSubstr("the log names the rank")));
  EXPECT_TRUE(alone.has_equal_weights);

  const DrillCase chief = MakeDrillCases(two_hosts, {"kill"}, {"saving"}).at(1);
  EXPECT_EQ(chief.injection.rank, 0);
  EXPECT_THAT(chief.words, Contains("is gone"));
}

TEST(DrillCases, SaysWhyNoCaseIsLeft) {
  const auto text = [](const std::vector<std::string>& phases) {
    try {
      (void)MakeDrillCases({.ranks = 2}, {"lost_host"}, phases);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(text({}), HasSubstr("got lost_host, want faults that can happen on these hosts; "
                                  "lost_host needs ranks on 2 hosts"));
  EXPECT_THAT(text({"saving"}), HasSubstr("got lost_host in saving, want faults"));
}

}  // namespace
}  // namespace carole::commands
