// Ten training steps against those that another framework recorded.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/train/training.h"

namespace carole::train {
namespace {

using carole::testing::Communicator;
using carole::testing::RunRanks;
using nlohmann::json;

constexpr int64_t kBatch = 4;

const json& Recorded() {
  static const json recorded = json::parse(std::ifstream(CAROLE_TEST_DATA "/trajectories.json"));
  return recorded;
}

// The recording's nets that this program has.
std::vector<size_t> CasesWeCanRun() {
  std::vector<size_t> cases;
  for (size_t i = 0; i < Recorded()["cases"].size(); ++i) {
    if (nets::TryFindNet(Recorded()["cases"][i]["net"].get<std::string>())) cases.push_back(i);
  }
  return cases;
}

class Trajectory : public ::testing::TestWithParam<size_t> {
 protected:
  struct Tolerance {
    double loss, weights;  // relative
  };

  const json& row() const { return Recorded()["cases"][GetParam()]; }
  int num_ranks() const { return row()["clones"]; }

  std::unique_ptr<TrainStep> MakeStep(const Backend& backend, Communicator& c, DType dtype) const {
    const nets::NetEntry& net = nets::FindNet(row()["net"].get<std::string>());
    nets::Model model = nets::BuildModel(net, {.batch_size = kBatch,
                                               .image_size = row()["size"],
                                               .num_classes = 10,
                                               .training = true,
                                               .dropout = false,
                                               .label_smoothing = row()["label_smoothing"],
                                               .compute = dtype});
    auto step = std::make_unique<TrainStep>(
        std::move(model.graph), backend, c,
        StepOptions{.optimizer = row()["optimizer"],
                    .buckets = {.first_bucket_bytes = 1 << 16, .bucket_bytes = 1 << 20}});
    for (size_t v = 0; v < step->store().places().size(); ++v) {
      const VariablePlace& p = step->store().places()[v];
      step->store().Write(static_cast<int>(v), golden::FormulaVariable(p.name, p.tf_shape, 1));
    }
    return step;
  }

  void Follow(const Backend& backend, Communicator& c, DType dtype, Tolerance tolerance) const {
    const auto step = MakeStep(backend, c, dtype);
    const int64_t pixels = step->executable().Input("images").size();
    for (int64_t s = 0; s < 10; ++s) {
      const auto images = golden::FormulaInput(
          "input/" + std::to_string(s) + "/" + std::to_string(c.rank()), pixels);
      std::vector<int32_t> labels;
      for (int k = 0; k < kBatch; ++k)
        labels.push_back(static_cast<int32_t>((7 * s + 3 * c.rank() + 5 * k) % 10));
      const double rate = row()["learning_rate"].get<double>() * std::pow(0.5, s / 4);
      const StepResult result = step->Run(
          {.images = images, .labels = labels, .valid = kBatch, .global_valid = kBatch * c.size()},
          {.step = s, .learning_rate = rate});
      const double want = row()["total_loss_f64"][s];
      EXPECT_NEAR(result.total_loss, want, tolerance.loss * want) << "step " << s;
    }
    CheckFinalWeights(step->store(), tolerance.weights);
  }

  void CheckFinalWeights(const VariableStore& store, double tolerance) const {
    for (const json& want : row()["final"]) {
      const std::string name = want["name"];
      const int v = store.Find(name);
      ASSERT_GE(v, 0) << name;
      std::vector<double> values(static_cast<size_t>(store.places()[v].tf_shape.size()));
      store.ReadFrom(store.base_of(v), v, std::span<double>(values));
      double squares = 0;
      for (double x : values) squares += x * x;
      const double norm = want["l2_f64"];
      EXPECT_NEAR(std::sqrt(squares), norm, tolerance * norm) << name;
      for (const json& sample : want["samples"]) {
        EXPECT_NEAR(values[sample[0].get<size_t>()], sample[1].get<double>(), tolerance)
            << name << " element " << sample[0];
      }
    }
  }
};

TEST_P(Trajectory, ReferenceInDouble) {
  RunRanks(num_ranks(), [&](Communicator& c) {
    const auto backend = MakeReferenceBackend(1);
    Follow(*backend, c, DType::kF64, {.loss = 1e-6, .weights = 1e-6});
  });
}

// Float32 programs stay within 1e-5 of each other on these nets.
TEST_P(Trajectory, OneDnnInFloat) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "built without oneDNN";
  RunRanks(num_ranks(), [&](Communicator& c) {
    const auto backend = MakeOneDnnBackend(1);
    Follow(*backend, c, DType::kF32, {.loss = 1e-4, .weights = 1e-4});
  });
}

INSTANTIATE_TEST_SUITE_P(All, Trajectory, ::testing::ValuesIn(CasesWeCanRun()),
                         [](const auto& info) {
                           const json& row = Recorded()["cases"][info.param];
                           return row["net"].get<std::string>() + "_" +
                                  row["optimizer"].get<std::string>() + "_ranks" +
                                  std::to_string(row["clones"].get<int>()) + "_case" +
                                  std::to_string(info.param);
                         });

}  // namespace
}  // namespace carole::train
