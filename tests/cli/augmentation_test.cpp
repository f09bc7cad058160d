// Augmentations as users turn them on: with several ranks, and in a run that is resumed.
#include <csignal>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;

class AugmentationTest : public CliTest {
 protected:
  // The digest of a run with these flags.
  std::string Train(const std::string& name, const Words& flags, int ranks = 1) {
    const ProcessResult run = RunToEnd(TrainWords(folder_ / name, flags), ranks);
    log_ = run.err;
    return DigestOf(folder_ / name);
  }
  std::string log_;  // of the last run
};

const Words kErase = {"--random_erasing_prob=0.5", "--random_erasing_mode=pixel",
                      "--random_erasing_count=2"};

TEST_F(AugmentationTest, ErasingIsTheSameOnAnyNumberOfRanks) {
  Words flags = kErase;
  flags.insert(flags.end(), {"--reproducible", "--threads=1", "--backend=reference"});
  Words one = flags, two = flags;
  one.push_back("--batch_size=16");
  two.push_back("--batch_size=8");
  const std::string digest = Train("one", one);
  EXPECT_THAT(log_, HasSubstr("preprocessing lenet, random_erasing, as fp32"));
  EXPECT_EQ(Train("two", two, 2), digest);
  EXPECT_NE(
      Train("plain", {"--reproducible", "--threads=1", "--backend=reference", "--batch_size=16"}),
      digest);
}

TEST_F(AugmentationTest, ErasingIsTheSameInARunThatIsResumed) {
  const std::string whole = Train("whole", kErase);
  Words words = kErase;
  words.push_back("--save_interval_secs=1e-9");
  const Words killed = CaroleWords(TrainWords(train_dir_, words));
  EXPECT_EQ(RunProcess(WithFault("0:8:input:kill", killed)).exit_code, 128 + SIGKILL);
  EXPECT_EQ(Train("run", kErase), whole);
  EXPECT_THAT(log_, HasSubstr("resuming from"));
}

TEST_F(AugmentationTest, ErrorsNameTheFlag) {
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--random_erasing_prob=2"})), 64,
                        {"--random_erasing_prob", "got 2, want 0 to 1"}));
}

}  // namespace
}  // namespace carole::testing
