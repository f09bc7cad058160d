// Ranks of a host that come, leave and look for each other at the worst moments.
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

  // Rank 0 does not find rank 1, which does `meanwhile` before rank 0 looks whether it is gone.
  void SyncWhile(const std::function<void()>& meanwhile) {
    Watch watch({}, names_, {.why_gone = [&](int rank) {
                  meanwhile();
                  return first_.WhyGone(rank);
                }});
    watch.Begin({});
    first_.Sync(watch);
  }

  const std::vector<std::string> names_ = {"rank 0", "rank 1"};
  Buffer slots_[2] = {MakeSlot(), MakeSlot()};
  std::byte* const shared_[2] = {slots_[0].data(), slots_[1].data()};
  NodeGroup first_{0, {0, 1}, shared_};
  NodeGroup second_{1, {0, 1}, shared_};
  Watch watch_of_second_{{}, names_, {}};
};

TEST_F(NodeGroupTest, ARankMayLeaveOnceItHasCome) {
  Watch watch({}, names_, {});
  SyncWhile([&] {
    second_.Sync(watch);
    second_.Leave();
  });
}

TEST_F(NodeGroupTest, AProcessThatIsNumberedElsewhereIsNotLookedFor) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  auto* slot = reinterpret_cast<RankSlot*>(shared_[1]);
  slot->process.store(child);
  EXPECT_EQ(first_.WhyGone(1), "its process has ended");
  slot->process_space.fetch_add(1);
  EXPECT_EQ(first_.WhyGone(1), "");
}

// Its deadline is over, but not that of the neighbor whose messages come in.
TEST_F(NodeGroupTest, ANeighborsSlowMessagesAreNoStall) {
  int looks = 0;
  const auto sync_while = [&](bool messages_come) {
    Watch watch({.deadline_seconds = 3}, names_, {.why_gone = [&](int) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(500));
                  if (messages_come) {
                    second_.SetWaitingFor(7, {});
                    second_.SetWaitingFor(-1, {});
                  }
                  if (++looks == 10) second_.Sync(watch_of_second_);
                  return std::string();
                }});
    watch.Begin({});
    watch.SetAgreed();
    first_.Sync(watch);
  };
  sync_while(true);
  EXPECT_EQ(looks, 10);
  EXPECT_THROW(sync_while(false), CommError);
}

TEST_F(NodeGroupTest, ARankThatLeavesWithoutComingIsGone) {
  EXPECT_THROW(SyncWhile([&] { second_.Leave(); }), CommError);
}

}  // namespace
}  // namespace carole::collectives
