// A call that takes too long is reported by a thread of its own.
#include "collectives/engine/call_deadline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

namespace carole::collectives {
namespace {

TEST(CallDeadline, ReportsOnlyTheCallThatIsLate) {
  std::promise<std::string> late;
  CallDeadline watch(2, [&](const std::string& name, const std::string& hint) {
    late.set_value(name + "; " + hint);
  });
  const CallDeadline::Call slow(watch, "slow", "wait");
  auto report = late.get_future();
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (report.wait_for(std::chrono::milliseconds(500)) != std::future_status::ready) {
    const CallDeadline::Call fast(watch, "fast", "");
    ASSERT_LT(std::chrono::steady_clock::now(), give_up);
  }
  EXPECT_EQ(report.get(), "slow; wait");
}

TEST(CallDeadline, IsQuietIfCallsReturnInTime) {
  bool is_late = false;
  {
    CallDeadline watch(2, [&](const std::string&, const std::string&) { is_late = true; });
    for (int i = 0; i < 8; ++i) {
      const CallDeadline::Call call(watch, "call", "");
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }
  EXPECT_FALSE(is_late);
}

}  // namespace
}  // namespace carole::collectives
