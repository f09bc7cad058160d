// The accuracy of each precision, and when it is refused.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

class PrecisionTest : public CliTest {
 protected:
  // Runs a shorter form of the demo's training.
  ProcessResult Train(const std::string& precision) {
    return Carole({"train", "--dataset_name=fashion_mnist",
                   "--dataset_dir=" + (folder_ / "fashion"), "--train_dir=" + (folder_ / precision),
                   "--model_name=lenet", "--batch_size=32", "--max_number_of_steps=250",
                   "--optimizer=adam", "--opt_epsilon=1e-8", "--learning_rate=0.0015",
                   "--precision=" + precision});
  }
  double Accuracy(const std::string& run, const std::string& precision) {
    const ProcessResult eval =
        RunToEnd({"eval", "--dataset_name=fashion_mnist", "--dataset_dir=" + (folder_ / "fashion"),
                  "--checkpoint_path=" + (folder_ / run), "--model_name=lenet",
                  "--eval_dir=", "--json", "--precision=" + precision});
    return nlohmann::json::parse(eval.out)["accuracy"];
  }
};

TEST_F(PrecisionTest, Bf16IsAboutAsAccurate) {
  if (!std::filesystem::exists(kFashionMnist)) GTEST_SKIP() << "skipped: no " << kFashionMnist;
  RunToEnd({"dataset", "build", "--dataset_name=fashion_mnist", "--raw_dir", kFashionMnist,
            "--dataset_dir", folder_ / "fashion", "--max_images=4000"});
  const ProcessResult narrow = Train("bf16");
  if (narrow.exit_code != 0) {
    EXPECT_TRUE(
        FailsWith(narrow, 78, {"[precision] bf16: not supported by this CPU", "--precision=fp32"}));
    GTEST_SKIP() << "skipped: " << narrow.err;
  }
  ASSERT_EQ(Train("fp32").exit_code, 0);
  const double accuracy = Accuracy("fp32", "fp32");
  EXPECT_GT(accuracy, 0.75);
  EXPECT_NEAR(Accuracy("fp32", "bf16"), accuracy, 0.003) << "same weights";
  EXPECT_NEAR(Accuracy("bf16", "bf16"), accuracy, 0.03) << "another training that did not converge";
}

TEST_F(PrecisionTest, IsRefusedIfTheDeviceLacksIt) {
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--precision=fp8"})), 64,
                        {"--precision: got fp8, want one of fp32, bf16, fp16, tf32"}));
  EXPECT_TRUE(FailsWith(Carole({"model", "summary", "lenet", "--precision=fp8"}), 64, {"fp8"}));
  for (const std::string backend : {"onednn", "reference"}) {
    EXPECT_TRUE(
        FailsWith(Carole(TrainWords(train_dir_, {"--backend=" + backend, "--precision=tf32"}), 2),
                  78, {"[precision] tf32", "use --precision=fp32 or bf16"}));
  }
  EXPECT_TRUE(FailsWith(Carole(EvalWords(train_dir_, {"--backend=onednn", "--precision=fp16"})), 78,
                        {"[precision] fp16: not supported by this CPU"}));
  EXPECT_FALSE(std::filesystem::exists(train_dir_));
}

// Runs two ranks, the second as on a CPU without AVX-512, like a cluster of mixed CPUs.
ProcessResult RunOnMixedCpus(const Words& train) {
  return RunProcess(WithSecondRank(train, "env ONEDNN_MAX_CPU_ISA=AVX2 \"$@\""));
}

// The blocks in which weights are stored depend on the vector length. Adding gradients in different
// layouts would mix up weights.
TEST_F(PrecisionTest, DifferentLayoutsOfWeightsAreRefused) {
  if (__builtin_cpu_supports("avx512bw") == 0) GTEST_SKIP() << "skipped: this CPU has no AVX-512";
  EXPECT_TRUE(FailsWith(
      RunOnMixedCpus(TrainWords(train_dir_, {"--backend=onednn", "--max_number_of_steps=2"})), 78,
      {"[train] layouts: rank 1 uses other memory layouts for weights"}));
}

TEST_F(PrecisionTest, IsRefusedIfOneRankLacksIt) {
  if (__builtin_cpu_supports("avx512bw") == 0) GTEST_SKIP() << "skipped: both ranks lack bf16";
  const ProcessResult result =
      RunOnMixedCpus(TrainWords(train_dir_, {"--precision=bf16", "--collective_timeout=600"}));
  EXPECT_TRUE(FailsWith(result, 78, {"[rank 1] [precision] bf16: not supported by this CPU"}));
  EXPECT_LT(result.seconds, 300) << "the job must not wait for the deadline";
}

}  // namespace
}  // namespace carole::testing
