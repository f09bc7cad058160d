// A follower returns each new newest checkpoint of a folder once.
#include "io/weights/checkpoint_follower.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/tensorflow/tf_checkpoint.h"
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

TEST_F(CheckpointFollowerTest, FollowsTheStateFileOfTensorFlow) {
  const auto next_path = [this] {
    const auto file = follower_.FindNew();
    return file ? file->path : "";
  };
  EXPECT_EQ(next_path(), "");
  WriteTfCheckpoint(folder_ / "m-2", {});
  EXPECT_EQ(next_path(), folder_ / "m-2");
  EXPECT_EQ(next_path(), "");
  WriteTfCheckpoint(folder_ / "m-1", {});
  EXPECT_EQ(next_path(), folder_ / "m-1");
  follower_.SkipLast();
  EXPECT_EQ(next_path(), "");
}

TEST_F(CheckpointFollowerTest, RefusesWhatIsOneCheckpoint) {
  Write(2);
  WriteTfCheckpoint(folder_ / "m-2", {});
  for (const char* name : {"model.ckpt-2.h5", "model.ckpt-2", "m-2", "m-2.index", "checkpoint",
                           "none.h5", "model.ckpt-9"})
    EXPECT_FALSE(CanBeFollowed(folder_ / name)) << name;
  EXPECT_TRUE(CanBeFollowed(folder_.path()));
  EXPECT_TRUE(CanBeFollowed(folder_ / "later"));
  std::filesystem::create_directory(folder_ / "saved");
  std::ofstream(folder_ / "saved/saved_model.pb") << "x";
  EXPECT_FALSE(CanBeFollowed(folder_ / "saved"));
}

}  // namespace
}  // namespace carole::io
