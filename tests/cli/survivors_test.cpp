// A lost rank costs no step: guardians save the state from the memory of a rank, and the next run
// continues from there with the same bits.
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
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
  // mpirun passes on what guardians log until it has ended the other ranks.
  Words Marked(const Words& words) const {
    return WithEnvironment({kMark + folder_.path(), "OMPI_MCA_odls_base_sigkill_timeout=3"}, words);
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

// A train_dir that some ranks cannot use, in mount namespaces of their own.
class UnusableTrainDir : public SurvivorsTest {
 protected:
  void SetUp() override {
    if (RunProcess({"unshare", "-m", "true"}).exit_code != 0)
      GTEST_SKIP() << "skipped: this user may not make mount namespaces";
    SurvivorsTest::SetUp();
    std::filesystem::create_directories(train_dir_);
  }

  // Returns a shell command that runs "$@" after `mount`, in a mount namespace.
  static std::string After(const std::string& mount) {
    return "unshare -m sh -c '" + mount + R"( && exec "$@"' sh "$@")";
  }
  std::string Hide() const { return "mount -t tmpfs none " + train_dir_; }
  std::string MakeReadOnly() const {
    return "mount --bind " + train_dir_ + " " + train_dir_ + " && mount -o remount,bind,ro " +
           train_dir_;
  }

  Words Flags() const { return {"--work_dir=" + work_dir_}; }

  // Runs a training of two ranks with this fault; `mount` concerns rank 1.
  ProcessResult RunWithMount(const std::string& fault, const std::string& mount,
                             const Words& flags) {
    const ProcessResult result = RunProcess(
        Marked(WithFault(fault, WithSecondRank(TrainWords(train_dir_, flags), After(mount)))));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(GuardiansLeft(), ::testing::IsEmpty());
    return result;
  }

  // Returns the folder of a lost run's state in --work_dir; "" if there is none.
  std::string Fallback() const {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(work_dir_, error)) {
      if (entry.path().filename().string().starts_with("survivors-")) return entry.path();
    }
    return "";
  }

  // The log says where the state is and how to continue. A user who does so gets the same bits.
  void ExpectTheStateInWorkDir(const ProcessResult& result) {
    const auto files = io::ListCheckpoints(Fallback());
    ASSERT_EQ(files.size(), 1u) << result.err;
    const auto& [step, path] = files[0];
    EXPECT_TRUE(step == kStep || step == kStep + 1) << step;
    EXPECT_THAT(result.err,
                ::testing::HasSubstr("step " + std::to_string(step) + " goes to " + path +
                                     " there; to continue from it, copy it to " + train_dir_ +
                                     " on the host of rank 0, and run again"));
    EXPECT_EQ(NewestStep(), 0);
    std::filesystem::copy_file(path, io::CheckpointPath(train_dir_, step));
    const ProcessResult resumed = RunToEnd(TrainWords(train_dir_, Flags()), 2);
    EXPECT_THAT(resumed.err, ::testing::HasSubstr("at step " + std::to_string(step)));
    EXPECT_EQ(DigestOf(train_dir_), UndisturbedDigest(2));
    EXPECT_EQ(Fallback(), "");  // the next run has removed it
  }

  const std::string work_dir_ = folder_ / "work";
};

// The memory of rank 0 may be damaged, so only rank 1 has a state.
TEST_F(UnusableTrainDir, IsReplacedByWorkDirIfItIsNotVisible) {
  ExpectTheStateInWorkDir(RunWithMount("0:7:backward:segv", Hide(), Flags()));
}

TEST_F(UnusableTrainDir, IsReplacedByWorkDirIfItIsReadOnly) {
  ExpectTheStateInWorkDir(RunWithMount("0:7:backward:segv", MakeReadOnly(), Flags()));
}

TEST_F(UnusableTrainDir, IsReplacedByWorkDirIfItsDiskIsFull) {
  const Words job = WithFault("1:7:backward:kill", CaroleWords(TrainWords(train_dir_, Flags()), 2));
  Words words = {"sh", "-c", After("mount -t tmpfs -o size=2m none " + train_dir_), "sh"};
  words.insert(words.end(), job.begin(), job.end());
  const ProcessResult result = RunProcess(Marked(words));
  EXPECT_THAT(GuardiansLeft(), ::testing::IsEmpty());
  ExpectTheStateInWorkDir(result);
}

TEST_F(UnusableTrainDir, IsUsedByARankThatCanWriteIt) {
  const ProcessResult result = RunWithMount("1:7:backward:kill", MakeReadOnly(), Flags());
  EXPECT_EQ(Fallback(), "");
  ExpectNothingLost(result, 2);
}

TEST_F(UnusableTrainDir, WithoutWorkDirLosesTheState) {
  const ProcessResult result = RunWithMount("0:7:backward:segv", Hide(), {});
  EXPECT_THAT(result.err,
              ::testing::ContainsRegex(train_dir_ + ": cannot be written on .*: step [78] is lost; "
                                                    "with a --work_dir on a disk of this host"));
  EXPECT_EQ(NewestStep(), 0);
}

// The records that all ranks have seen. A rank is lost in the second epoch, or in the last step of
// the first one: then the other ranks have applied the step but cannot sum its records.
class LedgerOfALostRank : public SurvivorsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int64_t kRecords = 300, kGlobalBatch = 16;
  static constexpr int64_t kLastOfEpoch = (kRecords - 1) / kGlobalBatch;  // step
  static constexpr int64_t kSteps = kLastOfEpoch + 12;

  nlohmann::json LedgerOf(const std::string& train_dir) const {
    return nlohmann::json::parse(RunToEnd({"checkpoint", "inspect", "--json", train_dir}).out)
        .at("ledger");
  }
};

TEST_P(LedgerOfALostRank, IsKept) {
  const Words more = {"--max_number_of_steps=" + std::to_string(kSteps)};
  const ProcessResult result = RunWithFault(GetParam(), 2, more);
  EXPECT_THAT(GuardiansLeft(), ::testing::IsEmpty());
  const nlohmann::json kept = LedgerOf(train_dir_);
  EXPECT_EQ(kept.at("total").at("epochs"), 1) << result.err;
  EXPECT_EQ(kept.at("epochs").at(0).at("seen"), kRecords);
  EXPECT_TRUE(kept.at("epochs").at(0).at("complete"));
  RunToEnd(TrainWords(train_dir_, more), 2);
  RunToEnd(TrainWords(folder_ / "undisturbed", more), 2);
  nlohmann::json got = LedgerOf(train_dir_), want = LedgerOf(folder_ / "undisturbed");
  for (nlohmann::json* ledger : {&got, &want}) {
    ledger->at("epochs").at(0).erase("planned");
    ledger->at("current").erase("planned");
  }
  EXPECT_EQ(got, want);
}

INSTANTIATE_TEST_SUITE_P(Steps, LedgerOfALostRank,
                         ::testing::Values("1:22:forward:kill", "1:18:optimizer:kill"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "in_the_second_epoch"
                                                              : "in_the_last_step_of_an_epoch");
                         });

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
