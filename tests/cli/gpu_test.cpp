// Training and evaluation on a GPU, the errors if there is none or a library is missing, and JPEGs
// that a GPU decodes.
#include <algorithm>
#include <cstdlib>
#include <fstream>

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
  // Runs the program with one emulated GPU per rank.
  ProcessResult OnEmulatedGpu(Words arguments, int ranks = 1) {
    arguments.push_back("--backend=cuda");
    Words words = CaroleWords(arguments, ranks);
    std::ranges::replace(words, std::string(CAROLE_BINARY),
                         std::string(CAROLE_EMULATED_GPU "/carole"));
    return RunWith(CAROLE_EMULATED_GPU_LIBRARIES, words,
                   {"XDG_CACHE_HOME=" + cache_, "CAROLE_EMULATED_GPUS=" + std::to_string(ranks)});
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
  ExpectSameLosses(OnEmulatedGpu(FiveSteps({"--precision=fp32"}), 2), FiveStepsOnCpu(2), 1e-4);
}

TEST_F(EmulatedGpuTest, BenchAllreduceMeasuresNccl) {
  const ProcessResult run =
      OnEmulatedGpu({"bench", "allreduce", "--sizes=4096,65536", "--steps=3", "--json"}, 2);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const std::string_view want : {R"("algorithm":"nccl")", R"("bytes":65536)"})
    EXPECT_THAT(run.out, ::testing::HasSubstr(want));
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

// Synthetic JPEGs and a fake GPU (tests/support/fake_gpu).
class NvJpegTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RunToEnd({"dataset", "build", "--dataset_name=synthetic", "--num_images=24", "--num_classes=4",
              "--image_width=48", "--dataset_dir=" + data_dir_});
  }

  Words TrainWords(const std::string& train_dir, const Words& more) const {
    Words words{"train",
                "--dataset_name=synthetic",
                "--dataset_dir=" + data_dir_,
                "--train_dir=" + train_dir,
                "--model_name=cifarnet",
                "--backend=reference",
                "--batch_size=4",
                "--max_number_of_steps=3",
                "--threads=1",
                "--num_preprocessing_threads=2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  TemporaryFolder folder_;
  std::string data_dir_ = folder_ / "data";
};

// The fake decoder uses libjpeg's accurate DCT. So its pixels reach the net if and only if the
// weights equal those of a run with that DCT.
TEST_F(NvJpegTest, ItsPixelsReachTheNet) {
  const std::string gpu = folder_ / "gpu", fast = folder_ / "fast", accurate = folder_ / "accurate";
  const ProcessResult trained =
      CaroleWith(CAROLE_FAKE_GPU, TrainWords(gpu, {"--jpeg_decoder=nvjpeg"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  RunToEnd(TrainWords(fast, {}));
  RunToEnd(TrainWords(accurate, {"--dct_method=INTEGER_ACCURATE"}));
  EXPECT_EQ(DigestOf(gpu), DigestOf(accurate));
  EXPECT_NE(DigestOf(gpu), DigestOf(fast));
}

TEST_F(NvJpegTest, TheCpuDecodesWhatItRefusesAndWarnsOnce) {
  const std::string refused = folder_ / "refused", cpu = folder_ / "cpu";
  const ProcessResult trained = CaroleWith(
      CAROLE_FAKE_GPU, TrainWords(refused, {"--jpeg_decoder=nvjpeg"}), {"FAKE_NVJPEG_STATUS=6"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string said = "nvjpegDecode: status 6";
  const size_t at = trained.err.find(said);
  EXPECT_NE(at, std::string::npos) << trained.err;
  EXPECT_EQ(trained.err.rfind(said), at) << trained.err;
  RunToEnd(TrainWords(cpu, {}));
  EXPECT_EQ(DigestOf(refused), DigestOf(cpu));
}

TEST_F(NvJpegTest, NamesWhatIsMissingInOneLine) {
  const Words words = TrainWords(folder_ / "run", {"--jpeg_decoder=nvjpeg"});
  EXPECT_TRUE(FailsWith(CaroleWith(CAROLE_FAKE_GPU, words, {"FAKE_GPU_COUNT=0"}), 78,
                        {"no GPU to decode on", "use --jpeg_decoder=cpu"}));
  EXPECT_TRUE(FailsWith(
      CaroleWith(CAROLE_FAKE_GPU, words, {"FAKE_NVJPEG_STATUS=6", "FAKE_CUDA_STATUS=719"}), 69,
      {"nvjpegDecode: status 6, cuStreamSynchronize: CUDA_ERROR"}));
  if (!GpuUnavailableReason().empty()) {
    EXPECT_TRUE(FailsWith(Carole(words), 78, {"cannot be loaded", "use --jpeg_decoder=cpu"}));
  }
}

}  // namespace
}  // namespace carole::testing
