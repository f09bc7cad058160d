#include "tests/bench/kernel_times.h"

#include <gtest/gtest.h>

namespace carole::bench {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(KernelTimes, OverlapsCountOnceAndGapsAreIdle) {
  const KernelSummary s = Summarize({{"b", 6 * kMs, 8 * kMs},  // after a gap of 1 ms
                                     {"a", 0, 4 * kMs},
                                     {"a", 2 * kMs, 5 * kMs},  // overlaps the first
                                     {"c", 3 * kMs, 4 * kMs},  // within both
                                     {"b", 8 * kMs, 10 * kMs}},
                                    100 * kMs);
  EXPECT_DOUBLE_EQ(s.ms, 10);
  EXPECT_DOUBLE_EQ(s.idle_share, 0.1);
  EXPECT_DOUBLE_EQ(s.longest_gap_ms, 1);
  ASSERT_EQ(s.rows.size(), 3U);
  EXPECT_EQ(s.rows[0].name, "a");
  EXPECT_DOUBLE_EQ(s.rows[0].ms, 7);
  EXPECT_EQ(s.rows[0].runs, 2);
  EXPECT_EQ(s.rows[2].name, "c");
}

TEST(KernelTimes, OnlyKernelsInTheWindowCount) {
  const KernelSummary s = Summarize(
      {{"warm-up", 0, kMs}, {"step", 90 * kMs, 95 * kMs}, {"step", 95 * kMs, 100 * kMs}}, 50 * kMs);
  EXPECT_DOUBLE_EQ(s.ms, 10);
  EXPECT_EQ(s.idle_share, 0);
  ASSERT_EQ(s.rows.size(), 1U);
  EXPECT_EQ(s.rows[0].runs, 2);
}

TEST(KernelTimes, NoKernelsGiveAnEmptySummary) {
  EXPECT_EQ(Summarize({}, kMs).ms, 0);
  EXPECT_EQ(Summarize({{"longer than the window", 0, 3 * kMs}}, kMs).rows.size(), 0U);
}

}  // namespace
}  // namespace carole::bench
