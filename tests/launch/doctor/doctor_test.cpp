// Judgments of `carole doctor`, and the command itself.
#include "launch/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <nlohmann/json.hpp>

#include "launch/machine/cores.h"
#include "tests/support/subprocess.h"

namespace carole::launch {
namespace {

using carole::TemporaryFolder;
using carole::testing::ProcessResult;
using carole::testing::RunProcess;
using ::testing::HasSubstr;

constexpr int64_t kMegabyte = 1 << 20;

// Every problem and warning has a fix, and nothing else has.
Verdict VerdictOf(const Finding& finding) {
  const bool is_bad = finding.verdict == Verdict::kProblem || finding.verdict == Verdict::kWarning;
  EXPECT_EQ(is_bad, !finding.fix.empty()) << finding.check << ": " << finding.text;
  return finding.verdict;
}

TEST(Doctor, Cores) {
  EXPECT_EQ(VerdictOf(JudgeCores(16, 16, 1, 0)), Verdict::kOk);
  EXPECT_EQ(VerdictOf(JudgeCores(4, 16, 4, 0)), Verdict::kOk);
  const Finding bound = JudgeCores(1, 16, 2, 0);
  EXPECT_EQ(VerdictOf(bound), Verdict::kProblem);
  EXPECT_EQ(bound.text, "1 of 16 cores for this rank, ranks on the machine: 2");
  EXPECT_THAT(bound.fix, HasSubstr("--map-by slot:PE=8"));
  const Finding crowded = JudgeCores(1, 2, 4, 0);
  EXPECT_EQ(VerdictOf(crowded), Verdict::kWarning);
  EXPECT_THAT(crowded.fix, HasSubstr("no more than 2 ranks"));
  EXPECT_EQ(VerdictOf(JudgeCores(8, 8, 4, 2.5)), Verdict::kWarning);
  EXPECT_EQ(VerdictOf(JudgeCores(8, 8, 1, 0.5)), Verdict::kProblem);
  EXPECT_EQ(VerdictOf(JudgeCores(8, 8, 1, 4)), Verdict::kOk);
}

TEST(Doctor, Memory) {
  EXPECT_EQ(VerdictOf(JudgeMemory(8L << 30, 4)), Verdict::kOk);
  EXPECT_EQ(JudgeMemory(8L << 30, 4).text, "2.0 GB for each rank");
  EXPECT_EQ(VerdictOf(JudgeMemory(2L << 30, 4)), Verdict::kWarning);
}

TEST(Doctor, SharedMemory) {
  EXPECT_EQ(VerdictOf(JudgeSharedMemory(24L << 30)), Verdict::kOk);
  EXPECT_EQ(VerdictOf(JudgeSharedMemory(64 * kMegabyte)), Verdict::kWarning);  // podman's default
  EXPECT_EQ(VerdictOf(JudgeSharedMemory(1 * kMegabyte)), Verdict::kProblem);
  EXPECT_EQ(VerdictOf(JudgeSharedMemory(-1)), Verdict::kProblem);
}

TEST(Doctor, Limits) {
  EXPECT_EQ(VerdictOf(JudgeLimits(1024, 65536, false)), Verdict::kOk);
  EXPECT_EQ(VerdictOf(JudgeLimits(256, -1, false)), Verdict::kProblem);
  EXPECT_EQ(VerdictOf(JudgeLimits(-1, 65536, true)), Verdict::kProblem);
  EXPECT_EQ(VerdictOf(JudgeLimits(-1, -1, true)), Verdict::kOk);
}

TEST(Doctor, Interfaces) {
  EXPECT_EQ(VerdictOf(JudgeInterfaces({"eth0", "ib0"}, "")), Verdict::kOk);
  const Finding bridge = JudgeInterfaces({"docker0", "eth1"}, "");
  EXPECT_EQ(VerdictOf(bridge), Verdict::kWarning);
  EXPECT_THAT(bridge.fix, HasSubstr("--network=eth1"));
  EXPECT_EQ(VerdictOf(JudgeInterfaces({"docker0", "eth1"}, "eth1")), Verdict::kOk);
  EXPECT_EQ(JudgeInterfaces({}, "").text, "loopback only");
}

TEST(Doctor, Mpi) {
  const std::string library = "Open MPI v4.1.4";
  EXPECT_EQ(VerdictOf(JudgeMpi(library, "mpirun (Open MPI) 4.1.4\n\nReport bugs")), Verdict::kOk);
  EXPECT_EQ(VerdictOf(JudgeMpi(library, "mpirun (Open MPI) 5.0.3\n")), Verdict::kProblem);
  EXPECT_EQ(VerdictOf(JudgeMpi(library, "HYDRA build details: Version: 4.1.4")), Verdict::kProblem);
  EXPECT_EQ(VerdictOf(JudgeMpi(library, "")), Verdict::kWarning);
  EXPECT_EQ(VerdictOf(JudgeMpi("none", "")), Verdict::kWarning);
}

TEST(Doctor, DiskAndClocks) {
  EXPECT_EQ(VerdictOf(JudgeDisk("/x", 100L << 30, 500.0 * kMegabyte)), Verdict::kOk);
  EXPECT_EQ(VerdictOf(JudgeDisk("/x", 100L << 30, 2.0 * kMegabyte)), Verdict::kWarning);
  EXPECT_EQ(VerdictOf(JudgeDisk("/x", 1 * kMegabyte, 500.0 * kMegabyte)), Verdict::kProblem);
  EXPECT_EQ(VerdictOf(JudgeClocks(0.02, 0.01)), Verdict::kOk);
  EXPECT_EQ(VerdictOf(JudgeClocks(90, 0.1)), Verdict::kWarning);
  EXPECT_EQ(VerdictOf(JudgeClocks(2, 3)), Verdict::kOk);  // cannot be told
}

TEST(Doctor, Pmix) {
  const std::string plugins = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n";
  EXPECT_EQ(VerdictOf(JudgePmix("4.2.2", "4.2.2", false, "")), Verdict::kOk);
  EXPECT_EQ(VerdictOf(JudgePmix("4.2.2", "", true, plugins)), Verdict::kOk);
  EXPECT_EQ(JudgePmix("4.2.2", "4.1.0", true, plugins).text,
            "library 4.2.2, started by 4.1.0; srun has pmix");
  EXPECT_EQ(VerdictOf(JudgePmix("4.2.2", "3.1.5", false, "")), Verdict::kProblem);
  EXPECT_EQ(VerdictOf(JudgePmix("4.2.2", "", true, "none\npmi2\n")), Verdict::kWarning);
  EXPECT_EQ(VerdictOf(JudgePmix("", "", false, "")), Verdict::kSkipped);
}

GpuFacts Facts(const char* built_cuda, int gpus = 0, int local_ranks = 1) {
  GpuFacts facts;
  facts.built_cuda = built_cuda;
  facts.gpus = gpus;
  facts.local_ranks = local_ranks;
  if (gpus == 0) facts.problem = "no GPU";
  return facts;
}

GpuFacts WithDriver(GpuFacts facts) {
  facts.driver.version = "535.104.05";
  facts.driver.cuda = 12020;
  return facts;
}

TEST(Doctor, NoGpuDriver) {
  EXPECT_EQ(VerdictOf(JudgeGpu(Facts("no"))), Verdict::kSkipped);
  GpuFacts facts = Facts("13.0");
  EXPECT_EQ(VerdictOf(JudgeGpu(facts)), Verdict::kSkipped);
  facts.visible_devices = "0,1";
  const Finding asked = JudgeGpu(facts);
  EXPECT_EQ(VerdictOf(asked), Verdict::kProblem);
  EXPECT_EQ(asked.text, "built with CUDA 13.0, CUDA_VISIBLE_DEVICES=\"0,1\", but no driver here");
}

TEST(Doctor, GpuAndItsDriver) {
  EXPECT_EQ(VerdictOf(JudgeGpu(WithDriver(Facts("no")))), Verdict::kWarning);
  const Finding good = JudgeGpu(WithDriver(Facts("12.4", 2, 2)));
  EXPECT_EQ(VerdictOf(good), Verdict::kOk);
  EXPECT_EQ(good.text,
            "2 GPUs for 2 ranks; driver 535.104.05 (CUDA up to 12.2), built with CUDA 12.4");
  const Finding old = JudgeGpu(WithDriver(Facts("13.0")));
  EXPECT_EQ(VerdictOf(old), Verdict::kProblem);
  EXPECT_EQ(old.fix, "a newer driver, for CUDA 13 at least; or build with CUDA 12.2");
  EXPECT_EQ(VerdictOf(JudgeGpu(WithDriver(Facts("12.4")))), Verdict::kProblem);
  GpuFacts few = WithDriver(Facts("12.4", 1, 2));
  EXPECT_EQ(VerdictOf(JudgeGpu(few)), Verdict::kProblem);
  few.visible_devices = "1";
  EXPECT_EQ(VerdictOf(JudgeGpu(few)), Verdict::kOk) << "one bound to each rank";
}

TEST(Doctor, Nccl) {
  EXPECT_EQ(VerdictOf(JudgeNccl("2.28.9", "", Facts("12.4", 2, 2))), Verdict::kOk);
  EXPECT_EQ(VerdictOf(JudgeNccl("", "not built", Facts("no"))), Verdict::kSkipped);
  EXPECT_EQ(VerdictOf(JudgeNccl("", "not built", Facts("12.4", 1, 1))), Verdict::kWarning);
  EXPECT_EQ(VerdictOf(JudgeNccl("", "not built", Facts("12.4", 2, 2))), Verdict::kProblem);
}

TEST(Doctor, DiskThatCannotBeWritten) {
  const Finding finding = CheckDisk("/proc/nowhere/run");
  EXPECT_EQ(VerdictOf(finding), Verdict::kProblem);
  EXPECT_THAT(finding.text, HasSubstr("/proc: cannot be written"));
  const TemporaryFolder folder;
  EXPECT_NE(CheckDisk(folder / "run/of/mine").text.find(folder.path()), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Doctor, DiskOfAFolderThatTrainingWouldMake) {
  const std::string here = std::filesystem::current_path();
  EXPECT_THAT(CheckDisk("no_such_run").text, HasSubstr(here + ": "));
  EXPECT_THAT(CheckDisk("no/such/run/").text, HasSubstr(here + ": "));
}

const nlohmann::json* Find(const nlohmann::json& machine, const std::string& check) {
  for (const auto& finding : machine.at("findings")) {
    if (finding.at("check") == check) return &finding;
  }
  return nullptr;
}

TEST(DoctorCommand, TellsAsJson) {
  const TemporaryFolder folder;
  const ProcessResult result =
      RunProcess({CAROLE_BINARY, "doctor", "--json", "--train_dir=" + folder / "run"}, 30);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(result.exit_code, json.at("ok").get<bool>() ? 0 : 1);
  const auto& machine = json.at("machines").at(0);
  for (const char* check : {"ranks", "cores", "memory", "shared memory", "limits", "MPI", "PMIx",
                            "network", "GPU", "NCCL", "data", "disk"})
    EXPECT_NE(Find(machine, check), nullptr) << check;
  EXPECT_EQ(Find(machine, "data")->at("verdict"), "skipped");
}

// One core for a rank that could have all.
TEST(DoctorCommand, BoundToOneCore) {
  if (FindBoundCores().count < 2) GTEST_SKIP() << "there is only one core";
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  const ProcessResult result =
      RunProcess({"taskset", "--cpu-list", std::to_string(first), CAROLE_BINARY, "doctor"}, 30);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("problem  cores          1 of "));
  EXPECT_THAT(result.out, HasSubstr("fix: start with mpirun --bind-to none"));
}

TEST(DoctorCommand, TroubleEndsWithOne) {
  const TemporaryFolder folder;
  std::ofstream(folder / "mnist_train.tfrecord") << "no record";
  const ProcessResult result =
      RunProcess({CAROLE_BINARY, "doctor", "--dataset_name=mnist", "--train_dir=/proc/nowhere",
                  "--dataset_dir=" + folder.path()},
                 30);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("mnist_train.tfrecord"));
  EXPECT_THAT(result.out,
              HasSubstr("fix: correct --dataset_dir, or copy what is missing or damaged again"));
  EXPECT_THAT(result.out, HasSubstr("/proc: cannot be written"));
  EXPECT_THAT(result.out, HasSubstr("problem found"));
}

TEST(DoctorCommand, RanksWithoutEachOther) {
  const char* tf_config = R"(TF_CONFIG={"cluster": {"chief": ["h0:1"], "worker": ["h1:1"]},)"
                          R"( "task": {"type": "worker", "index": 0}})";
  const ProcessResult result = RunProcess({"env", tf_config, CAROLE_BINARY, "doctor"}, 30);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("each of its processes believes to be alone"));
}

}  // namespace
}  // namespace carole::launch
