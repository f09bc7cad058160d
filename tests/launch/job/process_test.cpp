// Tests signals as terminals, people and schedulers send them, and what children inherit.
#include "launch/job/process.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace carole::launch {
namespace {

using ::testing::ContainsRegex;

TEST(BlockedSignals, DropASecondHangupButNotASecondRequest) {
  BlockedSignals signals;
  raise(SIGHUP);
  EXPECT_EQ(signals.Wait(0), SIGHUP);
  raise(SIGHUP);
  EXPECT_EQ(signals.Wait(0), std::nullopt);
  raise(SIGTERM);
  EXPECT_EQ(signals.Wait(0), SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(signals.Wait(0), SIGINT);
}

TEST(BlockedSignals, DropAHangupAfterARequestToStop) {
  BlockedSignals signals;
  raise(SIGUSR2);
  EXPECT_EQ(signals.Wait(0), SIGUSR2) << "SIGUSR2 does not ask to stop";
  raise(SIGTERM);
  EXPECT_EQ(signals.Wait(0), SIGTERM);
  raise(SIGHUP);
  EXPECT_EQ(signals.Wait(0), std::nullopt);
}

TEST(BlockedSignals, IgnoreSigpipeExceptInChildren) {
  struct sigaction before {
  }, after{};
  sigaction(SIGPIPE, nullptr, &before);
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  {
    const BlockedSignals signals;
    EXPECT_EQ(write(ends[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_THAT(RunAndCaptureOutput({"/bin/grep", "SigIgn", "/proc/self/status"}),
                ContainsRegex("[02468ace][0-9a-f]{3}\n"))
        << "SIGPIPE ends children as usual";
  }
  sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  close(ends[1]);
}

}  // namespace
}  // namespace carole::launch
