// A lost rank costs no step: guardians save the state from the memory of a rank, and the next run
// continues from there with the same bits.
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "io/checkpoint/checkpoint_folder.h"
#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

constexpr int64_t kStep = 7;  // of the fault
constexpr const char* kMark = "CAROLE_TEST_MARK=";

class SurvivorsTest : public CliTest {
 protected:
  // A training that saves only at its end. It fails with this fault: "RANK:STEP:PHASE:KIND".
  ProcessResult RunWithFault(const std::string& fault, int ranks, const Words& more = {}) {
    return RunProcess(Marked(WithFault(fault, CaroleWords(TrainWords(train_dir_, more), ranks))));
  }

  // The environment of a guardian is that of its rank, so a mark finds the guardians of this test.
  Words Marked(const Words& words) const {
    return WithEnvironment({kMark + folder_.path()}, words);
  }

  std::vector<pid_t> Guardians() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const bool is_guardian = ReadText(entry.path() / "cmdline").starts_with("carole: guardian");
      const std::string mark = kMark + folder_.path();
      if (is_guardian && ReadText(entry.path() / "environ").find(mark) != std::string::npos)
        found.push_back(std::stoi(name));
    }
    return found;
  }

  // Returns the guardians that are still there after a minute.
  std::vector<pid_t> GuardiansLeft() const {
    std::vector<pid_t> left = Guardians();
    for (int i = 0; i < 600 && !left.empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      left = Guardians();
    }
    return left;
  }

  int64_t NewestStep() const {
    const auto files = io::ListCheckpoints(train_dir_);
    return files.empty() ? 0 : files.back().step;
  }

  // Returns the digest at the end of a run that nothing disturbs.
  std::string UndisturbedDigest(int ranks, const Words& more = {}) {
    const std::string train_dir = folder_ / "undisturbed";
    RunToEnd(TrainWords(train_dir, more), ranks);
    return DigestOf(train_dir);
  }

  // At most the step in progress is lost, and the run ends with the same bits.
  void ExpectNothingLost(const ProcessResult& result, int ranks, const Words& more = {}) {
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(GuardiansLeft(), ::testing::IsEmpty());
    const int64_t step = NewestStep();
    ASSERT_TRUE(step == kStep || step == kStep + 1) << step << ":\n" << result.err;
    const ProcessResult resumed = RunToEnd(TrainWords(train_dir_, more), ranks);
    EXPECT_THAT(resumed.err, ::testing::HasSubstr("at step " + std::to_string(step)));
    EXPECT_EQ(DigestOf(train_dir_), UndisturbedDigest(ranks, more));
    EXPECT_FALSE(std::filesystem::exists(train_dir_ + "/.survivors"));
  }
};

// The sums of two ranks have one order, so their bits do not depend on timing.
struct Case {
  const char* name;
  const char* fault;
  int ranks;
  Words more = {};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class LostRank : public SurvivorsTest, public ::testing::WithParamInterface<Case> {};

TEST_P(LostRank, CostsNoStep) {
  const Case& c = GetParam();
  ExpectNothingLost(RunWithFault(c.fault, c.ranks, c.more), c.ranks, c.more);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, LostRank,
    ::testing::Values(Case{"other_in_forward", "1:7:forward:kill", 2},
                      Case{"other_in_reduction",
                           "1:7:reduction:kill",
                           2,
                           {"--moving_average_decay=0.9", "--optimizer=adam"}},
                      Case{"first_in_backward", "0:7:backward:kill", 2},
                      Case{"other_exits", "1:7:optimizer:exit", 2},
                      Case{"only_one_in_input", "0:7:input:kill", 1},
                      Case{"only_one_in_optimizer", "0:7:optimizer:kill", 1},
                      Case{"other_frozen", "1:7:backward:freeze", 2, {"--collective_timeout=6"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(SurvivorsTest, LogsTheCheckpoint) {
  Subprocess job(Marked(WithFault("0:7:forward:kill", CaroleWords(TrainWords(train_dir_)))));
  EXPECT_EQ(job.Wait().exit_code, 137);
  EXPECT_THAT(GuardiansLeft(), ::testing::IsEmpty());
  EXPECT_THAT(job.err(), ::testing::HasSubstr("saved step 7 from the memory of rank 0 to " +
                                              train_dir_ + "/model.ckpt-7.h5"));
}

TEST_F(SurvivorsTest, LeaveNothingAfterARunThatEndsWell) {
  RunProcess(Marked(CaroleWords(TrainWords(train_dir_), 2)));
  EXPECT_THAT(Guardians(), ::testing::IsEmpty());  // ranks wait for the end of their guardians
  EXPECT_FALSE(std::filesystem::exists(train_dir_ + "/.survivors"));
  EXPECT_EQ(NewestStep(), 12);
}

TEST_F(SurvivorsTest, CanBeTurnedOff) {
  RunWithFault("0:7:forward:kill", 1, {"--nosurvivors_checkpoint"});
  EXPECT_EQ(NewestStep(), 0);
  EXPECT_FALSE(std::filesystem::exists(train_dir_ + "/.survivors"));
}

// A state that is the cause of the end must not replace an older one.
TEST_F(SurvivorsTest, KeepNothingOfARunThatDiverges) {
  const ProcessResult result = RunProcess(
      Marked(CaroleWords(TrainWords(train_dir_, {"--learning_rate=1e30", "--ranks=1"}), 1)));
  EXPECT_EQ(result.exit_code, 78) << result.err;
  EXPECT_THAT(GuardiansLeft(), ::testing::IsEmpty());
  EXPECT_EQ(NewestStep(), 0);
}

class FatalSignal : public SurvivorsTest {
 protected:
  // Runs a long training and sends SIGSEGV to the last of `ranks` ranks while it trains.
  ProcessResult RunAndDamage(int ranks) {
    Subprocess job(Marked(CaroleWords(
        TrainWords(train_dir_, {"--max_number_of_steps=1000000", "--log_every_n_steps=1"}),
        ranks)));
    const auto trains = [&] { return job.err().find("global step 5:") != std::string::npos; };
    EXPECT_TRUE(job.WaitUntil(trains, 120)) << job.err();
    for (const pid_t process : ProcessesWith(train_dir_)) {
      const std::string variables = ReadText("/proc/" + std::to_string(process) + "/environ");
      const std::string rank =
          "OMPI_COMM_WORLD_RANK=" + std::to_string(ranks - 1) + std::string(1, '\0');
      if (ranks == 1 || variables.find(rank) != std::string::npos) kill(process, SIGSEGV);
    }
    return job.Wait(120);
  }
};

TEST_F(FatalSignal, KeepsNothingOfItsOwnRank) {
  const ProcessResult result = RunAndDamage(1);
  EXPECT_EQ(result.exit_code, 139);
  EXPECT_THAT(GuardiansLeft(), ::testing::IsEmpty());
  EXPECT_EQ(NewestStep(), 0) << result.err;
}

TEST_F(FatalSignal, KeepsTheStateOfTheOtherRank) {
  const ProcessResult result = RunAndDamage(2);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(GuardiansLeft(), ::testing::IsEmpty());
  EXPECT_GE(NewestStep(), 5) << result.err;
  RunToEnd({"checkpoint", "verify", train_dir_});
}

}  // namespace
}  // namespace carole::testing
