// Training and evaluation on a GPU, and the errors if there is none or a library is missing.
#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/backend/backend.h"
#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

// Runs a command with environment variables and with the libraries of these folders before others.
ProcessResult RunWith(const std::string& folders, const Words& command, const Words& variables) {
  const char* others = std::getenv("LD_LIBRARY_PATH");
  Words words = {"env", "LD_LIBRARY_PATH=" + folders + (others == nullptr ? "" : ":") +
                            (others == nullptr ? "" : others)};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), command.begin(), command.end());
  return RunProcess(words);
}

ProcessResult CaroleWith(const std::string& folders, const Words& arguments,
                         const Words& variables = {}) {
  return RunWith(folders, CaroleWords(arguments), variables);
}

class GpuTest : public CliTest {};

TEST_F(GpuTest, CommandsSayInOneLineThatThereIsNoGpu) {
  if (GpuUnavailableReason().empty()) GTEST_SKIP() << "skipped: this machine has a GPU";
  const Words no_gpu = {"--backend=cuda", "no GPU", "use --backend=onednn"};
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--backend=cuda"})), 78, no_gpu));
  EXPECT_TRUE(FailsWith(Carole({"bench", "train", "--backend=cuda"}), 78, no_gpu));
  EXPECT_TRUE(FailsWith(Carole({"bench", "train", "--backend=gpu"}), 64,
                        {"--backend", "got gpu, want one of auto, cpu, cuda, onednn, reference"}));
}

// The fake driver is older than any CUDA version that the program is built with. Libcudnn is
// missing at first, then broken.
TEST_F(GpuTest, OldDriverAndBrokenLibraryAreNamed) {
  const Words words = {"bench", "train", "--backend=cuda"};
  const ProcessResult old_driver = CaroleWith(CAROLE_FAKE_GPU, words);
  if (old_driver.err.find("without CUDA") != std::string::npos)
    GTEST_SKIP() << "skipped: " << old_driver.err;
  EXPECT_TRUE(FailsWith(
      old_driver, 78,
      {"--backend=cuda: no GPU", "driver version is insufficient", "use --backend=onednn"}));
  const ProcessResult on_cpu =
      CaroleWith(CAROLE_FAKE_GPU, {"bench", "train", "--model_name=lenet", "--steps=1"});
  EXPECT_EQ(on_cpu.exit_code, 0) << on_cpu.err;
  EXPECT_THAT(on_cpu.err, ::testing::HasSubstr("the GPUs are not used: "));
  EXPECT_THAT(on_cpu.err, ::testing::HasSubstr("driver version is insufficient"));
  const std::string broken = folder_ / "broken";
  std::filesystem::create_directories(broken);
  std::ofstream(broken + "/libcudnn.so.9") << "no library";
  EXPECT_TRUE(FailsWith(CaroleWith(broken + ":" + CAROLE_FAKE_GPU, words), 78,
                        {"libcudnn.so.9", "install cuDNN 9 and cuBLAS"}));
}

TEST_F(GpuTest, TrainsAndEvaluates) {
  if (const std::string problem = GpuUnavailableReason(); !problem.empty())
    GTEST_SKIP() << "skipped: " << problem;
  RunToEnd(TrainWords(train_dir_, {"--backend=cuda"}));
  RunToEnd(EvalWords(train_dir_, {"--backend=cuda"}));
}

// The whole CUDA backend on an emulated GPU (tests/support/cuda_emulation), with timed plans,
// captured steps, and images that are copied during a step.
class EmulatedGpuTest : public CliTest {
 protected:
  // Runs the program with one emulated GPU per rank, and with more environment variables.
  ProcessResult OnEmulatedGpu(Words arguments, int ranks = 1, Words variables = {}) {
    arguments.push_back("--backend=cuda");
    Words words = CaroleWords(arguments, ranks);
    std::ranges::replace(words, std::string(CAROLE_BINARY),
                         std::string(CAROLE_EMULATED_GPU "/carole"));
    variables.push_back("XDG_CACHE_HOME=" + cache_);
    variables.push_back("CAROLE_EMULATED_GPUS=" + std::to_string(ranks));
    return RunWith(CAROLE_EMULATED_GPU_LIBRARIES, words, variables);
  }
  // Returns the number of entries in the cache of fastest plans and other timed choices.
  size_t NumCachedPlans() {
    const std::string cache = ReadText(cache_ + "/carole/plans");
    return static_cast<size_t>(std::count(cache.begin(), cache.end(), '\n'));
  }
  // Returns the arguments of a run of five steps. On a GPU the last two are captured.
  Words FiveSteps(const Words& flags) const {
    Words words = TrainWords(
        "", {"--learning_rate=0.0001", "--log_every_n_steps=1", "--max_number_of_steps=5"});
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }
  ProcessResult FiveStepsOnCpu(int ranks) const {
    return Carole(FiveSteps({"--backend=reference"}), ranks);
  }
  // Expects equal losses within a relative tolerance.
  static void ExpectSameLosses(const ProcessResult& got, const ProcessResult& want,
                               double tolerance) {
    ASSERT_EQ(got.exit_code, 0) << got.err;
    ASSERT_EQ(want.exit_code, 0) << want.err;
    const std::vector<double> losses = LossesIn(got.err), wanted = LossesIn(want.err);
    ASSERT_EQ(wanted.size(), 5);
    ASSERT_EQ(losses.size(), wanted.size());
    for (size_t step = 0; step < wanted.size(); ++step)
      EXPECT_NEAR(losses[step], wanted[step], tolerance * wanted[step]) << "step " << step;
  }

  const std::string cache_ = folder_ / "cache";
};

TEST_F(EmulatedGpuTest, HasTheLossesOfTheCpu) {
  const struct {
    Words flags;
    double tolerance;  // relative
  } rows[] = {{{"--precision=fp32"}, 1e-4},
              {{"--precision=tf32"}, 1e-2},
              {{"--precision=bf16"}, 2e-2},
              {{"--precision=fp16", "--loss_scale=128"}, 1e-2}};
  const ProcessResult want = FiveStepsOnCpu(1);
  for (const auto& [flags, tolerance] : rows) {
    SCOPED_TRACE(flags[0]);
    ExpectSameLosses(OnEmulatedGpu(FiveSteps(flags)), want, tolerance);
  }
  EXPECT_GT(NumCachedPlans(), 4 * 4);
}

// NCCL (tests/support/nccl_emulation) sums gradients while backward still runs.
TEST_F(EmulatedGpuTest, TwoRanksHaveTheLossesOfTheCpu) {
  const ProcessResult run = OnEmulatedGpu(FiveSteps({"--precision=fp32"}), 2);
  ExpectSameLosses(run, FiveStepsOnCpu(2), 1e-4);
  const char* measured = " us on the GPUs";  // reductions, for the size of buckets
  EXPECT_THAT(run.err, ::testing::HasSubstr("step 4: captured as a CUDA graph"));
  EXPECT_THAT(run.err, ::testing::HasSubstr(measured));
  const ProcessResult plain =
      OnEmulatedGpu(FiveSteps({"--nocuda_graph", "--bucket_plan=fixed"}), 2);
  EXPECT_THAT(plain.err, ::testing::Not(::testing::HasSubstr("captured as a CUDA graph")));
  EXPECT_THAT(plain.err, ::testing::Not(::testing::HasSubstr(measured)));
}

// Filter gradients are rounded to 8 bits before they are added, and so are the sums.
TEST_F(EmulatedGpuTest, TwoRanksSendGradientsAsBf16) {
  const ProcessResult run = OnEmulatedGpu(FiveSteps({"--wire_dtype=bf16"}), 2);
  ExpectSameLosses(run, FiveStepsOnCpu(2), 1e-2);
  EXPECT_THAT(run.err, ::testing::HasSubstr("step 4: captured as a CUDA graph"));
  EXPECT_THAT(run.err, ::testing::Not(::testing::HasSubstr("has no effect")));
}

TEST_F(EmulatedGpuTest, TwoRanksUseTwoSlicesOfOneGpu) {
  const ProcessResult run = OnEmulatedGpu({"bench", "allreduce", "--sizes=4096", "--steps=1"}, 2,
                                          {"CAROLE_EMULATED_BUS_ID=0000:00:00.0"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

// The fake device is outside of /sys. Its name is in lower case, as bus ids are there.
TEST_F(EmulatedGpuTest, RanksThatShareAHostRunNextToTheirGpus) {
  if (!std::filesystem::exists("/sys/bus/pci/devices"))
    GTEST_SKIP() << "skipped: there is no /sys/bus/pci/devices";
  cpu_set_t cpus;
  ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  if (CPU_COUNT(&cpus) < 2 || CPU_COUNT(&cpus) < get_nprocs())
    GTEST_SKIP() << "skipped: there is only one CPU, or this process is bound to some";
  int first = 0;
  while (CPU_ISSET(first, &cpus) == 0) ++first;
  const std::string device = "/tmp/carole_gpu_" + std::to_string(getpid());
  std::filesystem::create_directory(device);
  std::ofstream(device + "/local_cpulist") << first << "\n";
  const Words words{"bench", "allreduce", "--sizes=4096", "--steps=1"},
      variables{"CAROLE_EMULATED_BUS_ID=../../../.." + device};
  const std::string bound = "bound to CPUs " + std::to_string(first) + ", which are next to GPU ";
  EXPECT_THAT(OnEmulatedGpu(words, 2, variables).err, ::testing::HasSubstr(bound));
  EXPECT_THAT(OnEmulatedGpu(words, 1, variables).err, ::testing::Not(::testing::HasSubstr(bound)));
  std::filesystem::remove_all(device);
}

TEST_F(EmulatedGpuTest, DifferentVersionsOfNcclAreNamed) {
  EXPECT_TRUE(FailsWith(OnEmulatedGpu({"bench", "allreduce", "--sizes=4096", "--steps=1"}, 2,
                                      {"CAROLE_EMULATED_NCCL_VERSION=22907"}),
                        78,
                        {"got 2.28.9 on rank 0 (", "and 2.29.7 on rank 1 (", "install the same"}));
}

TEST_F(EmulatedGpuTest, ErrorsOfTheFirstStartOfNcclSayWhatHelps) {
  const Words words{"bench", "allreduce", "--sizes=4096", "--steps=1"};
  EXPECT_TRUE(FailsWith(OnEmulatedGpu(words, 2, {"CAROLE_EMULATED_NCCL_FAILS=1"}), 69,
                        {"ncclCommInitRankConfig", "NCCL_NVLS_ENABLE=0", "/dev/shm has ",
                         "memlock=-1", "NCCL_DEBUG"}));
  EXPECT_TRUE(FailsWith(OnEmulatedGpu(words, 2, {"NCCL_GRAPH_MIXING_SUPPORT=0"}), 78,
                        {"NCCL_GRAPH_MIXING_SUPPORT: ", "got 0, want 1; unset it"}));
}

TEST_F(EmulatedGpuTest, BenchAllreduceMeasuresNccl) {
  const ProcessResult run =
      OnEmulatedGpu({"bench", "allreduce", "--sizes=4096,65536", "--steps=3", "--json"}, 2);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const std::string_view want : {R"("algorithm":"nccl")", R"("bytes":65536)"})
    EXPECT_THAT(run.out, ::testing::HasSubstr(want));
}

TEST_F(EmulatedGpuTest, BenchTrainShowsDeviceMemoryAndExposedCommunication) {
  const ProcessResult run = OnEmulatedGpu({"bench", "train", "--model_name=lenet", "--batch_size=2",
                                           "--steps=1", "--noautotune", "--json"},
                                          2);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_GT(json.at("exposed_communication_ms"), 0);
  EXPECT_EQ(json.at("device_memory_total_bytes").size(), 2);
  for (const auto& bytes : json.at("device_memory_used_bytes")) EXPECT_GT(bytes, 0);
}

// If no precision was asked for.
TEST_F(EmulatedGpuTest, TrainAdvisesTf32) {
  const auto log_of = [&](const Words& flags) {
    const ProcessResult run = OnEmulatedGpu(TrainWords("", flags));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.err;
  };
  constexpr const char* kAdvice = "--precision=tf32 is faster";
  EXPECT_THAT(log_of({"--max_number_of_steps=1"}), ::testing::HasSubstr(kAdvice));
  EXPECT_THAT(log_of({"--max_number_of_steps=1", "--precision=fp32"}),
              ::testing::Not(::testing::HasSubstr(kAdvice)));
}

TEST_F(EmulatedGpuTest, TrainShowsDeviceMemory) {
  const Words words = TrainWords(train_dir_, {"--max_number_of_steps=2"});
  const ProcessResult run = OnEmulatedGpu(words);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, ::testing::HasSubstr("in use on devices: rank 0: 0."));
  EXPECT_THAT(ReadText(train_dir_ + "/report.html"),
              ::testing::HasSubstr("<tr><td>device memory</td><td>rank 0: 0."));
}

TEST_F(EmulatedGpuTest, ReproducibleRunsHaveTheSameWeightsOnOneAndTwoGpus) {
  for (const int ranks : {1, 2}) {
    const ProcessResult run = OnEmulatedGpu(
        TrainWords(folder_ / std::to_string(ranks),
                   {"--reproducible", "--reproducible_shards=4", "--max_number_of_steps=5",
                    "--batch_size=" + std::to_string(8 / ranks)}),
        ranks);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.err, ::testing::HasSubstr("step 4: captured as a CUDA graph"));
  }
  EXPECT_EQ(DigestOf(folder_ / "2"), DigestOf(folder_ / "1"));
}

// Steps 3 to 7 are replayed. The last one has no later step that is launched before it ends.
TEST_F(EmulatedGpuTest, TraceShowsReductionsOfReplayedSteps) {
  const std::string trace = folder_ / "trace.json";
  const ProcessResult run = OnEmulatedGpu(
      TrainWords("", {"--max_number_of_steps=8", "--trace=" + trace, "--trace_steps=2:6"}), 2);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, ::testing::HasSubstr("captured as a CUDA graph"));
  std::map<std::pair<int, std::string>, std::set<int>> steps;  // by rank and name
  for (const auto& event : nlohmann::json::parse(ReadText(trace))) {
    if (event["ph"] == "X" && event["cat"] == "device")
      steps[{event["pid"], event["name"]}].insert(event["args"]["step"].get<int>());
  }
  for (const int rank : {0, 1}) {
    for (const char* name : {"step", "wait for reductions", "gradients 0", "losses on devices"})
      EXPECT_THAT((steps[{rank, name}]), ::testing::ElementsAre(2, 3, 4, 5, 6)) << name;
  }
}

TEST_F(EmulatedGpuTest, BenchAllreduceFindsWrongSums) {
  EXPECT_TRUE(
      FailsWith(OnEmulatedGpu({"bench", "allreduce", "--sizes=4096", "--steps=3"}, 2,
                              {"CAROLE_EMULATED_NCCL=wrong_sums"}),
                69, {"all-reduce of 4096 bytes: wrong sum on rank ", " in element 512, want "}));
}

TEST_F(EmulatedGpuTest, ResumesAndEvaluatesWithCachedPlans) {
  const auto train = [&](const std::string& folder, int steps) {
    const ProcessResult run = OnEmulatedGpu(
        TrainWords(folder, {"--precision=bf16", "--max_number_of_steps=" + std::to_string(steps)}));
    EXPECT_EQ(run.exit_code, 0) << run.err;
  };
  train(folder_ / "whole", 8);
  const size_t num_cached = NumCachedPlans();
  train(train_dir_, 5);
  train(train_dir_, 8);
  EXPECT_EQ(NumCachedPlans(), num_cached);
  EXPECT_EQ(DigestOf(train_dir_), DigestOf(folder_ / "whole"));
  const ProcessResult on_gpu = OnEmulatedGpu(EvalWords(train_dir_));
  const ProcessResult on_cpu = Carole(EvalWords(train_dir_, {"--backend=reference"}));
  ASSERT_EQ(on_gpu.exit_code, 0) << on_gpu.err;
  EXPECT_EQ(on_gpu.out, on_cpu.out);
}

}  // namespace
}  // namespace carole::testing
