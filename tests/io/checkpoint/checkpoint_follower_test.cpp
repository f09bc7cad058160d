// A follower returns each new newest checkpoint of a folder once.
#include "io/checkpoint/checkpoint_follower.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace carole::io {
namespace {

class CheckpointFollowerTest : public ::testing::Test {
 protected:
  void Write(int64_t step) { std::ofstream(CheckpointPath(folder_.path(), step)) << "x"; }
  void Remove(int64_t step) { std::filesystem::remove(CheckpointPath(folder_.path(), step)); }
  // Returns the step of the next new checkpoint, or -1 if there is none.
  int64_t NextStep() {
    const auto file = follower_.FindNew();
    return file ? file->step : -1;
  }

  const TemporaryFolder folder_;
  CheckpointFollower follower_{folder_.path()};
};

TEST_F(CheckpointFollowerTest, ReturnsTheNewestCheckpointOnce) {
  EXPECT_EQ(NextStep(), -1);
  Write(2);
  Write(3);
  EXPECT_EQ(NextStep(), 3);
  EXPECT_EQ(NextStep(), -1);
  Write(9);
  EXPECT_EQ(NextStep(), 9);
  EXPECT_EQ(NextStep(), -1);
}

// A training that was started again writes smaller steps.
TEST_F(CheckpointFollowerTest, ReturnsAnOlderStepIfNewerOnesAreGone) {
  Write(9);
  EXPECT_EQ(NextStep(), 9);
  Remove(9);
  Write(3);
  EXPECT_EQ(NextStep(), 3);
}

TEST_F(CheckpointFollowerTest, DoesNotReturnASkippedCheckpointAgain) {
  Write(2);
  EXPECT_EQ(NextStep(), 2);
  Write(4);
  EXPECT_EQ(NextStep(), 4);
  follower_.SkipLast();
  EXPECT_EQ(NextStep(), -1) << "2 was returned before";
  Write(5);
  EXPECT_EQ(NextStep(), 5);
}

TEST_F(CheckpointFollowerTest, ReturnsAnOlderCheckpointThatItPassedOver) {
  Write(2);
  Write(4);
  EXPECT_EQ(NextStep(), 4);
  follower_.SkipLast();
  EXPECT_EQ(NextStep(), 2);
}

}  // namespace
}  // namespace carole::io
