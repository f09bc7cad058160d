// Training, evaluation and prediction on a GPU, or what is said where there is none.
#include "src/backend/backend.h"
#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

class GpuTest : public CliTest {};

TEST_F(GpuTest, WithoutOneEveryCommandSaysSoInOneLine) {
  if (CudaTrouble().empty()) GTEST_SKIP() << "skipped: this machine has a GPU";
  const Words no_gpu = {"--backend=cuda", "no GPU", "use --backend=onednn"};
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--backend=cuda"})), 78, no_gpu));
  EXPECT_TRUE(FailsWith(Carole({"bench", "train", "--backend=cuda"}), 78, no_gpu));
  EXPECT_TRUE(FailsWith(Carole({"bench", "train", "--backend=gpu"}), 64,
                        {"--backend", "gpu not in {auto,cuda,onednn,reference}"}));
}

TEST_F(GpuTest, TrainsAndEvaluates) {
  if (const std::string trouble = CudaTrouble(); !trouble.empty())
    GTEST_SKIP() << "skipped: " << trouble;
  ASSERT_EQ(Carole(TrainWords(train_dir_, {"--backend=cuda"})).exit_code, 0);
  EXPECT_EQ(Carole(EvalWords(train_dir_, {"--backend=cuda"})).exit_code, 0);
}

}  // namespace
}  // namespace carole::testing
