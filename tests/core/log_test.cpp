#include "src/core/log.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace carole {
namespace {

using ::testing::MatchesRegex;

int hook_calls = 0;

// Returns the lines that `f` logs.
template <typename F>
std::string Logged(F f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

class Log : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("CAROLE_LOG_ALL_RANKS"); }
  void TearDown() override {
    SetLogHook(nullptr);
    SetLogRewrite(nullptr);
    SetLogRank(0, 1);
  }
};

TEST_F(Log, LineHasLevelTimeAndTag) {
  EXPECT_THAT(Logged([] { LogInfo("data", "{} shards", 3); }),
              MatchesRegex("I [0-9]+:[0-9]+:[0-9]+\\.[0-9]+ \\[data\\] 3 shards\n"));
  EXPECT_THAT(Logged([] { LogError("", "plain {{}}"); }),
              MatchesRegex("E [0-9:.]+ plain \\{\\}\n"));
}

TEST_F(Log, OtherRanksPrintOnlyWarningsAndErrors) {
  SetLogRank(3, 4);
  EXPECT_EQ(Logged([] { LogInfo("data", "hello"); }), "");
  EXPECT_THAT(Logged([] { LogWarning("comm", "slow"); }),
              MatchesRegex("W [0-9:.]+ \\[rank 3\\] \\[comm\\] slow\n"));
  SetLogRank(0, 4);
  EXPECT_THAT(Logged([] { LogInfo("data", "hello"); }),
              MatchesRegex("I [0-9:.]+ \\[rank 0\\] \\[data\\] hello\n"));
}

TEST_F(Log, EnvironmentVariableMakesAllRanksPrintEverything) {
  setenv("CAROLE_LOG_ALL_RANKS", "1", 1);
  SetLogRank(3, 4);
  EXPECT_THAT(Logged([] { LogInfo("data", "hello"); }),
              MatchesRegex("I [0-9:.]+ \\[rank 3\\] \\[data\\] hello\n"));
}

TEST_F(Log, HookRunsBeforeEveryPrintedLine) {
  hook_calls = 0;
  SetLogHook([] { ++hook_calls; });
  Logged([] {
    LogInfo("a", "one");
    SetLogRank(1, 2);
    LogInfo("a", "not printed");
    LogError("a", "two");
  });
  EXPECT_EQ(hook_calls, 2);
}

TEST_F(Log, RewritesTheTextButNotTheTag) {
  SetLogRewrite([](std::string_view text) { return "<" + std::string(text) + ">"; });
  EXPECT_THAT(Logged([] { LogInfo("data", "hello {}", 1); }),
              MatchesRegex("I [0-9:.]+ \\[data\\] <hello 1>\n"));
}

}  // namespace
}  // namespace carole
