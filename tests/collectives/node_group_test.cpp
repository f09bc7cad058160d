// Ranks of a host that come, leave and look for each other at the worst moments.
#include "collectives/node_group.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
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
};

TEST_F(NodeGroupTest, ARankMayLeaveOnceItHasCome) {
  Watch watch({}, names_, {});
  SyncWhile([&] {
    second_.Sync(watch);
    second_.Leave();
  });
}

TEST_F(NodeGroupTest, ARankThatLeavesWithoutComingIsGone) {
  EXPECT_THROW(SyncWhile([&] { second_.Leave(); }), CommError);
}

}  // namespace
}  // namespace carole::collectives
