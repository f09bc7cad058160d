#include "src/commands/cli/launch_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/error.h"
#include "tests/support/text_of.h"

namespace carole::commands {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LaunchArguments, AreSplitAtTheFirstDashes) {
  const LaunchArguments split = SplitAtDashes({"--ps=idle", "--", "train", "--a=1", "--", "x"});
  EXPECT_THAT(split.launch, ElementsAre("--ps=idle"));
  EXPECT_THAT(split.train, ElementsAre("--a=1", "--", "x"));
  for (const Arguments& bad : {Arguments{}, {"train"}, {"--"}, {"--", "eval"}})
    EXPECT_THAT(TextOf<UsageError>([&] { SplitAtDashes(bad); }),
                HasSubstr("want carole launch [FLAGS] -- train [FLAGS OF TRAIN]"));
}

TEST(LaunchArguments, MovesFlagsOfLaunchFromTrain) {
  LaunchArguments split = SplitAtDashes({"--ps=idle", "--", "train", "--a=1", "--max-restarts", "2",
                                         "-ports=1-2", "ports", "-1", "-", "--b"});
  MoveLaunchFlags([](const std::string& name) { return name == "max_restarts" || name == "ports"; },
                  split);
  EXPECT_THAT(split.launch, ElementsAre("--ps=idle", "--max-restarts", "2", "-ports=1-2"));
  EXPECT_THAT(split.train, ElementsAre("--a=1", "ports", "-1", "-", "--b"));
}

TEST(LaunchArguments, EvaluatorFollowsTheTraining) {
  EXPECT_THAT(
      EvalArguments({{"dataset_dir", "/data=1"},
                     {"train_dir", "/out/"},
                     {"model_name", "lenet"},
                     {"learning_rate", "0.1"},
                     {"train_image_size", "32"},
                     {"moving_average_decay", "0.99"},
                     {"use_grayscale", "false"},
                     {"eval_batch_size", "16"},
                     {"batch_size", "8"},
                     {"dct_method", "INTEGER_ACCURATE"},
                     {"precision", "bf16"}},
                    "/out/", 60),
      ElementsAre("--eval_interval_secs=10", "--until_trained", "--timeout=60",
                  "--dataset_dir=/data=1", "--use_grayscale=false", "--dct_method=INTEGER_ACCURATE",
                  "--model_name=lenet", "--eval_image_size=32", "--eval_batch_size=16",
                  "--moving_average_decay=0.99", "--checkpoint_path=/out/",
                  "--eval_dir=/out/eval"));
}

}  // namespace
}  // namespace carole::commands
