// Tests the checks of `carole doctor` and the command itself.
#include "launch/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "launch/machine/cores.h"
#include "tests/support/subprocess.h"

namespace carole::launch {
namespace {

using carole::TemporaryFolder;
using carole::testing::ProcessResult;
using carole::testing::RunProcess;
using ::testing::HasSubstr;

constexpr int64_t kMegabyte = 1 << 20;

// Returns the status of a finding. Expects a fix if and only if it is a problem or a warning.
FindingStatus StatusOf(const Finding& finding) {
  const bool is_bad =
      finding.status == FindingStatus::kProblem || finding.status == FindingStatus::kWarning;
  EXPECT_EQ(is_bad, !finding.fix.empty()) << finding.check << ": " << finding.text;
  return finding.status;
}

TEST(Doctor, JudgesCores) {
  EXPECT_EQ(StatusOf(JudgeCores(16, 16, 1, 0)), FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgeCores(4, 16, 4, 0)), FindingStatus::kOk);
  const Finding bound = JudgeCores(1, 16, 2, 0);
  EXPECT_EQ(StatusOf(bound), FindingStatus::kProblem);
  EXPECT_EQ(bound.text, "1 of 16 cores for this rank, ranks on this host: 2");
  EXPECT_THAT(bound.fix, HasSubstr("--map-by slot:PE=8"));
  const Finding crowded = JudgeCores(1, 2, 4, 0);
  EXPECT_EQ(StatusOf(crowded), FindingStatus::kWarning);
  EXPECT_THAT(crowded.fix, HasSubstr("at most 2 ranks"));
  EXPECT_EQ(StatusOf(JudgeCores(8, 8, 4, 2.5)), FindingStatus::kWarning);
  EXPECT_EQ(StatusOf(JudgeCores(8, 8, 1, 0.5)), FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgeCores(8, 8, 1, 4)), FindingStatus::kOk);
}

TEST(Doctor, JudgesMemory) {
  EXPECT_EQ(StatusOf(JudgeMemory(8L << 30, 4)), FindingStatus::kOk);
  EXPECT_EQ(JudgeMemory(8L << 30, 4).text, "2.0 GB for each rank");
  EXPECT_EQ(StatusOf(JudgeMemory(2L << 30, 4)), FindingStatus::kWarning);
}

TEST(Doctor, JudgesSharedMemory) {
  EXPECT_EQ(StatusOf(JudgeSharedMemory(24L << 30)), FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgeSharedMemory(64 * kMegabyte)),
            FindingStatus::kWarning);  // podman's default
  EXPECT_EQ(StatusOf(JudgeSharedMemory(1 * kMegabyte)), FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgeSharedMemory(-1)), FindingStatus::kProblem);
}

TEST(Doctor, JudgesLimits) {
  EXPECT_EQ(StatusOf(JudgeLimits(1024, 65536, false)), FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgeLimits(256, -1, false)), FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgeLimits(-1, 65536, true)), FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgeLimits(-1, -1, true)), FindingStatus::kOk);
}

TEST(Doctor, JudgesInterfaces) {
  EXPECT_EQ(StatusOf(JudgeInterfaces({"eth0", "ib0"}, "")), FindingStatus::kOk);
  const Finding bridge = JudgeInterfaces({"docker0", "eth1"}, "");
  EXPECT_EQ(StatusOf(bridge), FindingStatus::kWarning);
  EXPECT_THAT(bridge.fix, HasSubstr("\x1f$(network)=eth1"));
  EXPECT_EQ(StatusOf(JudgeInterfaces({"docker0", "eth1"}, "eth1")), FindingStatus::kOk);
  EXPECT_EQ(JudgeInterfaces({}, "").text, "loopback only");
}

TEST(Doctor, JudgesMpi) {
  const std::string library = "Open MPI v4.1.4";
  EXPECT_EQ(StatusOf(JudgeMpi(library, "mpirun (Open MPI) 4.1.4\n\nReport bugs")),
            FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgeMpi(library, "mpirun (Open MPI) 5.0.3\n")), FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgeMpi(library, "HYDRA build details: Version: 4.1.4")),
            FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgeMpi(library, "")), FindingStatus::kWarning);
  EXPECT_EQ(StatusOf(JudgeMpi("none", "")), FindingStatus::kWarning);
}

TEST(Doctor, JudgesDiskAndClocks) {
  EXPECT_EQ(StatusOf(JudgeDisk("/x", 100L << 30, 500.0 * kMegabyte)), FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgeDisk("/x", 100L << 30, 2.0 * kMegabyte)), FindingStatus::kWarning);
  EXPECT_EQ(StatusOf(JudgeDisk("/x", 1 * kMegabyte, 500.0 * kMegabyte)), FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgeClocks(0.02, 0.01)), FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgeClocks(90, 0.1)), FindingStatus::kWarning);
  EXPECT_EQ(StatusOf(JudgeClocks(2, 3)), FindingStatus::kOk);  // the error is larger than the skew
}

TEST(Doctor, JudgesPmix) {
  const std::string plugins = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n";
  EXPECT_EQ(StatusOf(JudgePmix("4.2.2", "4.2.2", false, "")), FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgePmix("4.2.2", "", true, plugins)), FindingStatus::kOk);
  EXPECT_EQ(JudgePmix("4.2.2", "4.1.0", true, plugins).text,
            "library 4.2.2, started by PMIx 4.1.0; srun has pmix");
  EXPECT_EQ(StatusOf(JudgePmix("4.2.2", "3.1.5", false, "")), FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgePmix("4.2.2", "", true, "none\npmi2\n")), FindingStatus::kWarning);
  EXPECT_EQ(StatusOf(JudgePmix("", "", false, "")), FindingStatus::kSkipped);
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

TEST(Doctor, ReportsAMissingGpuDriverIfGpusWereAskedFor) {
  EXPECT_EQ(StatusOf(JudgeGpu(Facts("no"))), FindingStatus::kSkipped);
  GpuFacts facts = Facts("13.0");
  EXPECT_EQ(StatusOf(JudgeGpu(facts)), FindingStatus::kSkipped);
  facts.visible_devices = "0,1";
  const Finding asked = JudgeGpu(facts);
  EXPECT_EQ(StatusOf(asked), FindingStatus::kProblem);
  EXPECT_EQ(asked.text,
            "built with CUDA 13.0, CUDA_VISIBLE_DEVICES=\"0,1\", but no NVIDIA driver here");
}

TEST(Doctor, JudgesGpusAndTheirDriver) {
  EXPECT_EQ(StatusOf(JudgeGpu(WithDriver(Facts("no")))), FindingStatus::kWarning);
  const Finding good = JudgeGpu(WithDriver(Facts("12.4", 2, 2)));
  EXPECT_EQ(StatusOf(good), FindingStatus::kOk);
  EXPECT_EQ(good.text,
            "2 GPUs for 2 ranks; driver 535.104.05 (CUDA up to 12.2), built with CUDA 12.4");
  const Finding old = JudgeGpu(WithDriver(Facts("13.0")));
  EXPECT_EQ(StatusOf(old), FindingStatus::kProblem);
  EXPECT_EQ(old.fix, "install a driver for CUDA 13 or newer, or build with CUDA 12.2");
  EXPECT_EQ(StatusOf(JudgeGpu(WithDriver(Facts("12.4")))), FindingStatus::kProblem);
  GpuFacts few = WithDriver(Facts("12.4", 1, 2));
  EXPECT_EQ(StatusOf(JudgeGpu(few)), FindingStatus::kProblem);
  few.visible_devices = "1";
  EXPECT_EQ(StatusOf(JudgeGpu(few)), FindingStatus::kOk) << "one GPU is bound to each rank";
}

TEST(Doctor, JudgesNccl) {
  EXPECT_EQ(StatusOf(JudgeNccl("2.28.9", "", Facts("12.4", 2, 2))), FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgeNccl("", "not built", Facts("no"))), FindingStatus::kSkipped);
  EXPECT_EQ(StatusOf(JudgeNccl("", "not built", Facts("12.4", 1, 1))), FindingStatus::kWarning);
  EXPECT_EQ(StatusOf(JudgeNccl("", "not built", Facts("12.4", 2, 2))), FindingStatus::kProblem);
}

TEST(Doctor, JudgesTheMemoryThatNcclNeeds) {
  constexpr int64_t kEnough = 2L << 30;
  EXPECT_EQ(StatusOf(JudgeGpuMemory(kMegabyte, 65536, 1)), FindingStatus::kSkipped);
  EXPECT_EQ(StatusOf(JudgeGpuMemory(kEnough, -1, 8)), FindingStatus::kOk);
  EXPECT_EQ(StatusOf(JudgeGpuMemory(64 * kMegabyte, -1, 2)), FindingStatus::kWarning);
  EXPECT_EQ(StatusOf(JudgeGpuMemory(64 * kMegabyte, -1, 8)), FindingStatus::kProblem);
  EXPECT_EQ(StatusOf(JudgeGpuMemory(-1, -1, 2)), FindingStatus::kProblem);
  const Finding locked = JudgeGpuMemory(kEnough, 8 * kMegabyte, 2);
  EXPECT_EQ(StatusOf(locked), FindingStatus::kWarning);
  EXPECT_EQ(locked.text, "2.0 GB free in /dev/shm, locked memory 8 MB");
  EXPECT_THAT(locked.fix, HasSubstr("--ulimit memlock=-1"));
}

TEST(Doctor, ReportsADiskThatCannotBeWritten) {
  const Finding finding = CheckDisk("/proc/nowhere/run");
  EXPECT_EQ(StatusOf(finding), FindingStatus::kProblem);
  EXPECT_THAT(finding.text, HasSubstr("/proc: cannot be written"));
  const TemporaryFolder folder;
  EXPECT_NE(CheckDisk(folder / "run/of/mine").text.find(folder.path()), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Doctor, SaysWhyADiskCannotBeWritten) {
  for (const auto& [error, fix] : {std::pair(EACCES, "that this user may write"),
                                   {ENOSPC, "free some space, or"},
                                   {EDQUOT, "free some space within the quota"},
                                   {EROFS, "the file system is read-only"}}) {
    const Finding finding = JudgeUnwritable("/x", error);
    EXPECT_EQ(StatusOf(finding), FindingStatus::kProblem);
    EXPECT_THAT(finding.text, HasSubstr("/x: cannot be written: "));
    EXPECT_THAT(finding.fix, HasSubstr(fix));
  }
}

TEST(Doctor, MeasuresTheParentOfAMissingFolder) {
  const std::string here = std::filesystem::current_path();
  EXPECT_THAT(CheckDisk("no_such_run").text, HasSubstr(here + ": "));
  EXPECT_THAT(CheckDisk("no/such/run/").text, HasSubstr(here + ": "));
}

// Returns the finding of a check in the JSON of a machine, or nullptr.
const nlohmann::json* FindFinding(const nlohmann::json& machine, const std::string& check) {
  for (const auto& finding : machine.at("findings")) {
    if (finding.at("check") == check) return &finding;
  }
  return nullptr;
}

TEST(DoctorCommand, PrintsJson) {
  const TemporaryFolder folder;
  const ProcessResult result =
      RunProcess({CAROLE_BINARY, "doctor", "--json", "--train_dir=" + folder / "run"}, 300);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(result.exit_code, json.at("ok").get<bool>() ? 0 : 1);
  const auto& machine = json.at("machines").at(0);
  for (const char* check : {"ranks", "cores", "memory", "shared memory", "limits", "MPI", "PMIx",
                            "network", "GPU", "NCCL", "NCCL memory", "data", "disk"})
    EXPECT_NE(FindFinding(machine, check), nullptr) << check;
  EXPECT_EQ(FindFinding(machine, "data")->at("verdict"), "skipped");
}

// The only rank is bound to one core although it could use all.
TEST(DoctorCommand, ReportsABindingToOneCore) {
  if (FindBoundCores().count < 2) GTEST_SKIP() << "skipped: there is only one core";
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  const ProcessResult result =
      RunProcess({"taskset", "--cpu-list", std::to_string(first), CAROLE_BINARY, "doctor"}, 300);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("problem  cores          1 of "));
  EXPECT_THAT(result.out, HasSubstr("fix: start with mpirun --bind-to none"));
}

TEST(DoctorCommand, ExitsWith1OnAProblem) {
  const TemporaryFolder folder;
  std::ofstream(folder / "mnist_train.tfrecord") << "no record";
  const ProcessResult result =
      RunProcess({CAROLE_BINARY, "doctor", "--dataset_name=mnist", "--train_dir=/proc/nowhere",
                  "--dataset_dir=" + folder.path()},
                 30);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("mnist_train.tfrecord"));
  EXPECT_THAT(result.out,
              HasSubstr("fix: correct --dataset_dir, or copy missing and damaged files again"));
  EXPECT_THAT(result.out, HasSubstr("/proc: cannot be written"));
  EXPECT_THAT(result.out, HasSubstr("problem found"));
}

TEST(DoctorCommand, ReportsProcessesThatAreNotConnected) {
  const char* tf_config = R"(TF_CONFIG={"cluster": {"chief": ["h0:1"], "worker": ["h1:1"]},)"
                          R"( "task": {"type": "worker", "index": 0}})";
  const ProcessResult result = RunProcess({"env", tf_config, CAROLE_BINARY, "doctor"}, 300);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("its processes are not connected"));
}

}  // namespace
}  // namespace carole::launch
