// Compares the first losses of carole train with TensorFlow's. tests/bench/losses.py recorded them
// in TensorFlow, with carole's initial weights, order of images and dropout.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"
#include "tests/support/test_data.h"

namespace carole::testing {
namespace {

// Returns the relative tolerance. The log has four digits. The tolerance is larger if TensorFlow's
// own losses change when one bit of its initial weights changes, which shows after some steps;
// losses.py explains why.
double ToleranceAt(size_t step, const nlohmann::json& run) {
  const double own = run["own_difference"];
  return own < 5e-4 || step < 3 ? 2e-3 : std::max(1e-2, 2 * own);
}

class Losses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFashionMnist)) GTEST_SKIP() << "skipped: no " << kFashionMnist;
    recorded_ = nlohmann::json::parse(std::ifstream(TestData() + "/fashion_mnist_losses.json"));
    RunToEnd({"dataset", "build", "--dataset_name=fashion_mnist", "--raw_dir", kFashionMnist,
              "--dataset_dir", data_dir_, "--max_images=" + recorded_["images"].dump()});
  }

  void ExpectSameLosses(const nlohmann::json& recorded, const std::string& backend) {
    const std::string optimizer = recorded["optimizer"], rate = recorded["learning_rate"].dump();
    SCOPED_TRACE(optimizer + " at " + rate + " on " + backend);
    const std::vector<double> want = recorded["losses"];
    const ProcessResult run =
        RunToEnd({"train", "--dataset_name=fashion_mnist", "--dataset_dir=" + data_dir_,
                  "--train_dir=", "--model_name=lenet", "--optimizer=" + optimizer,
                  "--learning_rate=" + rate, "--backend=" + backend,
                  "--max_number_of_steps=" + std::to_string(want.size()), "--log_every_n_steps=1"});
    const std::vector<double> losses = LossesIn(run.err);
    ASSERT_EQ(losses.size(), want.size());
    for (size_t step = 0; step < want.size(); ++step)
      EXPECT_NEAR(losses[step], want[step], ToleranceAt(step, recorded) * want[step])
          << "step " << step;
  }

  TemporaryFolder folder_;
  std::string data_dir_ = folder_ / "data";
  nlohmann::json recorded_;
};

TEST_F(Losses, EqualTensorFlowsForEachOptimizer) {
  for (const nlohmann::json& run : recorded_.at("runs")) {
    ExpectSameLosses(run, "auto");
    if (run.at("learning_rate") < 0.01) ExpectSameLosses(run, "reference");
  }
}

}  // namespace
}  // namespace carole::testing
