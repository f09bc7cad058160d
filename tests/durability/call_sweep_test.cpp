// Kills a program at each file operation, or lets the operation fail. Training must go on or end
// with exit code 74 and a message, and what was saved must stay.
#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "io/checkpoint/checkpoint_folder.h"
#include "tests/cli/cli.h"
#include "tests/durability/example_checkpoint.h"
#include "tests/durability/recorder.h"
#include "tests/durability/settings.h"
#include "tests/durability/unfinished_files.h"
#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

namespace fs = std::filesystem;

struct NamedFault {
  const char* name;
  Injection injection;
};

constexpr NamedFault kFaults[] = {
    {"kill", {Injection::Kind::kKill}},
    {"ENOSPC", {Injection::Kind::kError, ENOSPC}},
    {"EIO", {Injection::Kind::kError, EIO}},
    {"EDQUOT", {Injection::Kind::kError, EDQUOT}},
    {"EROFS", {Injection::Kind::kError, EROFS}},
    {"EINTR", {Injection::Kind::kError, EINTR}},
    {"short write", {Injection::Kind::kShortWrite}},
};

// EINTR and short writes must be invisible.
bool IsInvisible(const NamedFault& fault) {
  return fault.injection.error == EINTR || fault.injection.kind == Injection::Kind::kShortWrite;
}

bool IsWrite(const std::string& key) {
  return key.starts_with("write") || key.starts_with("pwrite");
}

// One call of a run and the fault that it gets.
struct Case {
  std::string key;  // of Recorder
  const NamedFault* fault;
};

// Whether each run makes this call. A slow run may write its report more often than four times: at
// the begin, after two evaluations and at the end.
bool IsInEachRun(const std::string& key) {
  const bool is_of_report = key.find("report.html") != std::string::npos;
  return !is_of_report || std::stoi(key.substr(key.rfind(' '))) <= 4;
}

// Returns all cases of a run with these calls.
std::vector<Case> AllCases(const std::vector<std::string>& keys) {
  std::vector<Case> cases;
  for (const std::string& key : keys) {
    if (!IsInEachRun(key)) continue;
    for (const NamedFault& fault : kFaults) {
      const bool fits = fault.injection.kind != Injection::Kind::kShortWrite || IsWrite(key);
      if (fits) cases.push_back({key, &fault});
    }
  }
  return cases;
}

// Returns the cases that this run of the test checks: a sample, or all from --first to --last.
std::vector<Case> Choose(std::vector<Case> cases, size_t sample) {
  EXPECT_FALSE(cases.empty()) << "no call was recorded";
  if (!TestSettings().exhaustive) {
    std::mt19937 random(1);
    std::ranges::shuffle(cases, random);
    cases.resize(std::min(cases.size(), sample));
    return cases;
  }
  const size_t first = std::min(cases.size(), TestSettings().first);
  const size_t last = TestSettings().last;
  const size_t end = last < cases.size() ? last + 1 : cases.size();
  return {cases.begin() + static_cast<std::ptrdiff_t>(first),
          cases.begin() + static_cast<std::ptrdiff_t>(std::max(first, end))};
}

class CallSweepTest : public ::testing::Test {
 protected:
  // Counts what the cases led to.
  struct Counts {
    int unchanged = 0, stopped = 0, killed = 0;
  };

  std::string NewRoot(const TemporaryFolder& folder) const {
    fs::create_directory(folder / "root");
    return fs::canonical(folder / "root");
  }

  // Runs a program with the fault of the case. Returns what happened. Sets `newest` to the newest
  // step whose save had returned.
  static TraceResult RunCase(const Words& words, const std::string& root, const Case& c,
                             int64_t& newest) {
    bool injected = false;
    Recorder recorder(root, [&](const std::string& key, const TracedCall&) {
      if (injected || key != c.key) return Injection{};
      injected = true;
      return c.fault->injection;
    });
    TraceResult result = RunTraced(words, root, recorder, 120);
    EXPECT_TRUE(injected) << c.key << ": the program does not make this call in each run";
    newest = NewestSaved(recorder.ops());
    return result;
  }

  // Returns the newest checkpoint of the folder `run` that was renamed before the folder was
  // synced.
  static int64_t NewestSaved(const std::vector<FileOp>& ops) {
    int64_t renamed = 0, saved = 0;
    Node folder = -1;
    for (const FileOp& op : ops) {
      const bool is_best = op.text.find("/best/") != std::string::npos;
      if (op.kind == OpKind::kRename && op.new_name.starts_with("model.ckpt-") && !is_best) {
        renamed = std::stoll(op.new_name.substr(std::strlen("model.ckpt-")));
        folder = op.new_folder;
      }
      if (op.kind == OpKind::kSync && op.node == folder) saved = renamed;
    }
    return saved;
  }

  // Checks exit code and message. Returns whether the program ended as if nothing had happened.
  bool CheckEnd(const Case& c, const TraceResult& result, Counts& counts) const {
    EXPECT_FALSE(result.timed_out) << c.key;
    // Guardians open files there, too. A run whose guardian was killed goes on.
    const bool may_be_guardian = c.key.find("/.survivors/") != std::string::npos;
    const bool is_kill = c.fault->injection.kind == Injection::Kind::kKill;
    if (is_kill && !(may_be_guardian && result.exit_code == 0)) {
      EXPECT_EQ(result.exit_code, 128 + SIGKILL);
      ++counts.killed;
      return false;
    }
    if (IsInvisible(*c.fault) || result.exit_code == 0) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      ++counts.unchanged;
      return true;
    }
    EXPECT_EQ(result.exit_code, 74) << result.err;
    EXPECT_THAT(result.err, ::testing::HasSubstr(std::strerror(c.fault->injection.error)));
    EXPECT_THAT(result.err, ::testing::HasSubstr(": cannot "));
    ++counts.stopped;
    return false;
  }

  // Prints from which case to continue if the sweep is interrupted.
  void PrintProgress() {
    constexpr size_t kEvery = 50;
    if (TestSettings().exhaustive && num_begun_ % kEvery == 0) {
      std::printf("case %zu\n", TestSettings().first + num_begun_);
      std::fflush(stdout);
    }
    ++num_begun_;
  }
  size_t num_begun_ = 0;

  static constexpr int kMaxFailures = 10;
  static int NumFailures() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  }

  static void Print(const char* what, size_t calls, size_t all, size_t checked,
                    const Counts& counts) {
    std::printf(
        "%s: %zu calls, %zu of %zu cases checked: %d unchanged, %d stopped with a message, %d "
        "killed\n",
        what, calls, checked, all, counts.unchanged, counts.stopped, counts.killed);
  }
};

TEST_F(CallSweepTest, OfSaves) {
  constexpr int kFirst = 3, kLast = 6;  // the folder holds 1 and 2 before
  const auto words = [](const std::string& root, int first, int last) {
    return Words{CAROLE_DURABILITY_WRITER, root + "/new/run", std::to_string(first),
                 std::to_string(last)};
  };
  const TemporaryFolder folder;
  const std::string root = NewRoot(folder);
  RunProcess(words(root, 1, 2));
  Recorder baseline(root);
  ASSERT_EQ(RunTraced(words(root, kFirst, kLast), root, baseline).exit_code, 0);
  const std::vector<Case> all = AllCases(baseline.keys());
  const std::vector<Case> cases = Choose(all, 60);
  Counts counts;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.key + ": " + c.fault->name);
    PrintProgress();
    const TemporaryFolder own;
    const std::string own_root = NewRoot(own);
    RunProcess(words(own_root, 1, 2));
    int64_t newest = 0;
    const TraceResult result = RunCase(words(own_root, kFirst, kLast), own_root, c, newest);
    const bool unchanged = CheckEnd(c, result, counts);
    const auto latest = io::ReadLatest(own_root + "/new/run");
    ASSERT_TRUE(latest);
    const int64_t step = latest->checkpoint.step;
    EXPECT_GE(step, unchanged ? kLast : std::max<int64_t>(2, newest));
    io::Checkpoint want = ExampleCheckpoint(step);
    EXPECT_EQ(latest->checkpoint.digest, io::ComputeDigest(want));
    ForgetProcessesOfFilesIn(own_root);
    EXPECT_EQ(RunProcess(words(own_root, kFirst, kLast)).exit_code, 0);
    EXPECT_THAT(UnfinishedFilesIn(own_root), ::testing::IsEmpty());
    if (NumFailures() > kMaxFailures) FAIL() << "stopped after too many failures";
  }
  Print("saves", baseline.keys().size(), all.size(), cases.size(), counts);
}

class CallSweepOfTrainingTest : public CallSweepTest {
 protected:
  static constexpr int kSteps = 4;

  void SetUp() override {
    WriteDigits(folder_ / "raw", 40, 20);
    RunToEnd({"dataset", "build", "--dataset_name=mnist", "--raw_dir", folder_ / "raw",
              "--dataset_dir", folder_ / "data"});
  }

  Words TrainWords(const std::string& root) const {
    return {"train",
            "--dataset_name=mnist",
            "--dataset_dir=" + folder_ / "data",
            "--train_dir=" + root + "/new/run",
            "--model_name=lenet",
            "--train_image_size=4",
            "--batch_size=8",
            "--learning_rate=0.01",
            "--max_number_of_steps=" + std::to_string(kSteps),
            "--save_interval_secs=1e-9",
            "--keep_checkpoints=2",
            "--eval_every=2",
            "--keep_best",
            "--save_summaries_steps=2",
            "--collective_timeout=60",
            "--threads=1",
            "--num_preprocessing_threads=1"};
  }

  static uint64_t StateDigest(const std::string& folder) {
    auto latest = io::ReadLatest(folder);
    if (!latest) return 0;
    latest->checkpoint.attributes.clear();  // they have the paths
    return io::ComputeDigest(latest->checkpoint);
  }

  // Sweeps a training of this many ranks.
  void Sweep(int ranks, size_t sample) {
    const std::string root = NewRoot(baseline_folder_);
    Recorder baseline(root);
    const TraceResult undisturbed = RunTraced(CaroleWords(TrainWords(root), ranks), root, baseline);
    ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;
    const uint64_t want = StateDigest(root + "/new/run");
    const std::vector<Case> all = AllCases(baseline.keys());
    const std::vector<Case> cases = Choose(all, sample);
    Counts counts;
    for (const Case& c : cases) {
      SCOPED_TRACE(c.key + ": " + c.fault->name);
      PrintProgress();
      CheckCase(c, ranks, want, counts);
      if (NumFailures() > kMaxFailures) FAIL() << "stopped after too many failures";
    }
    Print(ranks == 1 ? "training" : "training of 2 ranks", baseline.keys().size(), all.size(),
          cases.size(), counts);
  }

  void CheckCase(const Case& c, int ranks, uint64_t want, Counts& counts) {
    const TemporaryFolder own;
    const std::string root = NewRoot(own), run = root + "/new/run";
    int64_t newest = 0;
    const TraceResult result = RunCase(CaroleWords(TrainWords(root), ranks), root, c, newest);
    const bool unchanged = CheckEnd(c, result, counts);
    EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr("deadline")));
    const auto latest = io::ReadLatest(run);
    EXPECT_GE(latest ? latest->checkpoint.step : 0, unchanged ? kSteps : newest);
    if (unchanged) {
      EXPECT_EQ(StateDigest(run), want);
    }
    if (unchanged && !IsInvisible(*c.fault)) return;
    ForgetProcessesOfFilesIn(root);
    const ProcessResult resumed = Carole(TrainWords(root), ranks);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(StateDigest(run), want);
    EXPECT_EQ(ReadText(run + "/evaluated"), std::to_string(kSteps) + "\n");
    EXPECT_THAT(UnfinishedFilesIn(root), ::testing::IsEmpty());
  }

  TemporaryFolder folder_, baseline_folder_;
};

TEST_F(CallSweepOfTrainingTest, OfOneRank) { Sweep(1, 14); }

// Runs at night only.
TEST_F(CallSweepOfTrainingTest, OfTwoRanks) { Sweep(2, 40); }

}  // namespace
}  // namespace carole::testing
