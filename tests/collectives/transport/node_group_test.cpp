// Ranks of a host that come, leave and check on each other at the worst moments.
#include "collectives/transport/node_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "src/core/error.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {
namespace {

// Two ranks in one thread.
class NodeGroupTest : public ::testing::Test {
 protected:
  static Buffer MakeSlot() {
    Buffer memory(NodeGroup::kSharedBytes);
    NodeGroup::MakeSlot(memory.data());
    return memory;
  }

  // Rank 0 waits for rank 1, which has not come. Runs `meanwhile` just before rank 0 checks whether
  // rank 1 is gone.
  void BarrierWhile(const std::function<void()>& meanwhile) {
    Watchdog watchdog({}, names_, {.departure_reason = [&](int rank) {
                        meanwhile();
                        return first_.DepartureReason(rank);
                      }});
    watchdog.Begin({});
    first_.Barrier(watchdog);
  }

  const std::vector<std::string> names_ = {"rank 0", "rank 1"};
  Buffer slots_[2] = {MakeSlot(), MakeSlot()};
  std::byte* const shared_[2] = {slots_[0].data(), slots_[1].data()};
  NodeGroup first_{0, {0, 1}, shared_};
  NodeGroup second_{1, {0, 1}, shared_};
  Watchdog watchdog_of_second_{{}, names_, {}};
};

TEST_F(NodeGroupTest, ARankMayLeaveOnceItHasCome) {
  Watchdog watchdog({}, names_, {});
  BarrierWhile([&] {
    second_.Barrier(watchdog);
    second_.Leave();
  });
}

TEST_F(NodeGroupTest, DoesNotProbeProcessesOfAnotherPidNamespace) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  auto* slot = reinterpret_cast<RankSlot*>(shared_[1]);
  slot->pid.store(child);
  EXPECT_EQ(first_.DepartureReason(1), "its process has ended");
  slot->pid_namespace.fetch_add(1);
  EXPECT_EQ(first_.DepartureReason(1), "");
}

// The barrier takes longer than the deadline, but a local rank keeps receiving messages.
TEST_F(NodeGroupTest, SlowMessagesOfALocalRankAreNoStall) {
  int checks = 0;
  const auto barrier_while = [&](bool receives_messages) {
    Watchdog watchdog({.deadline_seconds = 3}, names_, {.departure_reason = [&](int) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(500));
                        if (receives_messages) {
                          second_.SetWaitingFor(7, {});
                          second_.SetWaitingFor(-1, {});
                        }
                        if (++checks == 10) second_.Barrier(watchdog_of_second_);
                        return std::string();
                      }});
    watchdog.Begin({});
    watchdog.SetAllArrived();
    first_.Barrier(watchdog);
  };
  barrier_while(true);
  EXPECT_EQ(checks, 10);
  EXPECT_THROW(barrier_while(false), CommError);
}

TEST_F(NodeGroupTest, ARankThatLeavesWithoutComingIsGone) {
  EXPECT_THROW(BarrierWhile([&] { second_.Leave(); }), CommError);
}

}  // namespace
}  // namespace carole::collectives
