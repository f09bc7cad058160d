// Compares a few training steps with steps that were recorded from other frameworks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/test_data.h"
#include "tests/train/training.h"

namespace carole::train {
namespace {

using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using nlohmann::json;

json CasesOf(const std::string& file) {
  return json::parse(std::ifstream(TestData() + "/" + file))["cases"];
}

// Reads the recorded runs of TF-Slim's nets and of the other programs, with the same keys for both.
// In the former file, some values are the same for all runs and are not listed for each; the latter
// file uses other keys.
std::vector<json> ReadTrajectories() {
  std::vector<json> cases;
  for (json row : CasesOf("trajectories.json")) {
    row.update({{"batch", 4}, {"weight_decay", 4e-5}, {"epsilon", 1.0}, {"biased_variance", true}});
    cases.push_back(row);
  }
  for (json row : CasesOf("trajectories_resnet_mnist.json")) {
    if (row["epsilon"].is_null()) row["epsilon"] = 1.0;  // not Adam
    row.update({{"batch", row["batch_per_tower"]},
                {"clones", row["towers"]},
                {"label_smoothing", 0.0},
                {"total_loss_f64", row["loss_f64"]},
                {"biased_variance", false}});
    cases.push_back(row);
  }
  return cases;
}

const std::vector<json>& Cases() {
  static const std::vector<json> cases = ReadTrajectories();
  return cases;
}

int64_t NumSteps(const json& row) { return static_cast<int64_t>(row["total_loss_f64"].size()); }

// Returns the learning rate of a recorded step. TF-Slim's rate halves every four steps. The other
// programs divide it by 10 after each boundary, if there are boundaries.
double LearningRate(const json& row, int64_t step) {
  const double rate = row["learning_rate"];
  if (!row.contains("boundaries")) return rate * std::pow(0.5, step / 4);
  const auto passed = std::count_if(row["boundaries"].begin(), row["boundaries"].end(),
                                    [&](const json& boundary) { return step > boundary; });
  return rate * std::pow(0.1, static_cast<double>(passed));
}

constexpr double kMovingAverageDecay = 0.99;

// Converts moving variances. The double-precision program that recorded TF-Slim's nets averaged the
// biased variance of a batch. Single-precision programs and carole use the unbiased variance, which
// is larger by the factor n/(n - 1).
struct VarianceAverage {
  double decay;
  double rows;  // n
  int64_t steps;

  // Returns the moving variance of the recorded program if carole has `value`. `start` is the value
  // before the first step.
  double Recorded(double value, double start) const {
    return Mix(value, start * std::pow(decay, steps));
  }
  // Does the same for the moving average (EMA) of the moving variance.
  double RecordedAverage(double value, double start) const {
    double kept = 1;  // weight of `start` that is left in the average
    for (int64_t s = 1; s <= steps; ++s) {
      const double d = std::min(kMovingAverageDecay, (1.0 + s) / (10.0 + s));
      kept -= (1 - d) * (kept - std::pow(decay, s));
    }
    return Mix(value, start * kept);
  }

 private:
  double Mix(double value, double kept) const { return kept + (value - kept) * (rows - 1) / rows; }
};

// Returns the parameters of the moving variances of a graph, by the name of the variable.
std::map<std::string, VarianceAverage> VarianceAverages(const Graph& graph, int64_t steps) {
  std::map<ValueId, std::string> names;
  for (const Variable& v : graph.variables()) names[v.value] = v.name;
  std::map<std::string, VarianceAverage> averages;
  for (const Node& node : graph.nodes()) {
    if (node.kind != op::kBatchNorm) continue;
    const Shape& x = graph.shape(node.inputs[0]);
    averages[names.at(node.inputs.back())] = {
        .decay = node.attributes.as<BatchNormAttributes>().decay,
        .rows = static_cast<double>(x.size() / x[1]),
        .steps = steps};
  }
  return averages;
}

class Trajectory : public ::testing::TestWithParam<size_t> {
 protected:
  struct Tolerance {
    double loss, weights;  // relative errors
    int64_t steps = 1000;  // compare at most this many; weights are compared only after all steps
  };

  const json& row() const { return Cases()[GetParam()]; }
  int64_t batch() const { return row()["batch"]; }
  int num_ranks() const { return row()["clones"]; }
  bool HasBatchNorm() const {
    const std::vector<json> variables = row()["final"];
    return std::any_of(variables.begin(), variables.end(), [](const json& variable) {
      return variable["name"].get<std::string>().ends_with("/moving_variance");
    });
  }

  std::unique_ptr<TrainStep> MakeStep(const Backend& backend, FullCommunicator& c,
                                      DType dtype) const {
    const nets::NetEntry& net = nets::FindNet(row()["net"].get<std::string>());
    nets::Model model = nets::BuildModel(net, {.batch_size = batch(),
                                               .image_size = row()["size"],
                                               .num_classes = 10,
                                               .training = true,
                                               .dropout = false,
                                               .label_smoothing = row()["label_smoothing"],
                                               .compute = dtype});
    auto step = std::make_unique<TrainStep>(
        std::move(model.graph), backend, c,
        StepOptions{.optimizer = row()["optimizer"],
                    .optimizer_options = {.weight_decay = row()["weight_decay"],
                                          .opt_epsilon = row()["epsilon"]},
                    .moving_average_decay = kMovingAverageDecay,
                    .buckets = {.first_bucket_bytes = 1 << 16, .bucket_bytes = 1 << 20},
                    .average_statistics = false});  // the recorded ones are those of replica 0
    for (size_t v = 0; v < step->store().variables().size(); ++v) {
      const VariableSlice& p = step->store().variables()[v];
      step->store().Write(static_cast<int>(v), golden::FormulaVariable(p.name, p.tf_shape, 1));
    }
    step->replica().moving_averages->Reset();
    return step;
  }

  void Follow(const Backend& backend, FullCommunicator& c, DType dtype, Tolerance tolerance) const {
    const auto step = MakeStep(backend, c, dtype);
    const int64_t pixels = step->executable().Input("images").size();
    const int64_t steps = std::min(tolerance.steps, NumSteps(row()));
    for (int64_t s = 0; s < steps; ++s) {
      const auto images = golden::FormulaInput(
          "input/" + std::to_string(s) + "/" + std::to_string(c.rank()), pixels);
      std::vector<int32_t> labels;
      for (int k = 0; k < batch(); ++k)
        labels.push_back(static_cast<int32_t>((7 * s + 3 * c.rank() + 5 * k) % 10));
      const StepResult result = step->Run({.images = images,
                                           .labels = labels,
                                           .valid = batch(),
                                           .global_valid = batch() * c.size()},
                                          {.step = s, .learning_rate = LearningRate(row(), s)});
      const double want = row()["total_loss_f64"][s];
      EXPECT_NEAR(result.total_loss, want, tolerance.loss * want) << "step " << s;
    }
    if (steps == NumSteps(row())) CheckFinalWeights(*step, c.rank(), tolerance.weights);
  }

  // Each rank has its own running statistics. Those of rank 0 were recorded, as in checkpoints.
  void CheckFinalWeights(TrainStep& step, int rank, double tolerance) const {
    const VariableStore& store = step.store();
    const auto averages = row()["biased_variance"] ? VarianceAverages(step.graph(), NumSteps(row()))
                                                   : std::map<std::string, VarianceAverage>{};
    for (const json& want : row()["final"]) {
      const std::string name = want["name"];
      const int v = store.Find(name);
      ASSERT_GE(v, 0) << name;
      const VariableSlice& slice = store.variables()[v];
      if (!slice.trainable && rank != 0) continue;
      const std::byte* shadow =
          step.replica().moving_averages->shadow(slice.trainable ? 0 : 1).data();
      std::vector<double> values(static_cast<size_t>(slice.tf_shape.size())),
          shadows(values.size());
      store.ReadFrom(store.base_of(v), v, std::span<double>(values));
      store.ReadFrom(shadow, v, std::span<double>(shadows));
      if (const auto average = averages.find(name); average != averages.end()) {
        const std::vector<float> start = golden::FormulaVariable(name, slice.tf_shape, 1);
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = average->second.Recorded(values[i], start[i]);
          shadows[i] = average->second.RecordedAverage(shadows[i], start[i]);
        }
      }
      ExpectRecorded(values, want, "l2_f64", 1, tolerance);
      if (want.contains("ema_l2_f64")) ExpectRecorded(shadows, want, "ema_l2_f64", 2, tolerance);
    }
  }

  // `column` is the element of a sample [index, value, moving average] to compare with.
  static void ExpectRecorded(const std::vector<double>& values, const json& want,
                             const char* norm_of, size_t column, double tolerance) {
    double squares = 0;
    for (double x : values) squares += x * x;
    const double norm = want[norm_of];
    EXPECT_NEAR(std::sqrt(squares), norm, tolerance * norm) << want["name"] << " " << norm_of;
    for (const json& sample : want["samples"]) {
      EXPECT_NEAR(values[sample[0].get<size_t>()], sample[column].get<double>(), tolerance)
          << want["name"] << " element " << sample[0] << " column " << column;
    }
  }
};

TEST_P(Trajectory, ReferenceInDouble) {
  RunRanks(num_ranks(), [&](FullCommunicator& c) {
    const auto backend = MakeReferenceBackend(1);
    Follow(*backend, c, DType::kF64, {.loss = 1e-6, .weights = 1e-6});
  });
}

// Float32 programs stay within 1e-5 of each other. With batch norm over so few images, they diverge
// after two or three steps: one ReLU whose input rounds to the other side of 0 changes a gradient
// by 3 %.
TEST_P(Trajectory, OneDnnInFloat) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  const Tolerance tolerance = HasBatchNorm() ? Tolerance{.loss = 1e-2, .weights = 0, .steps = 2}
                                             : Tolerance{.loss = 1e-4, .weights = 1e-4};
  RunRanks(num_ranks(), [&](FullCommunicator& c) {
    const auto backend = MakeOneDnnBackend(1);
    Follow(*backend, c, DType::kF32, tolerance);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Trajectory, ::testing::Range(size_t{0}, Cases().size()),
                         [](const auto& info) {
                           const json& row = Cases()[info.param];
                           return row["net"].get<std::string>() + "_" +
                                  row["optimizer"].get<std::string>() + "_ranks" +
                                  std::to_string(row["clones"].get<int>()) + "_case" +
                                  std::to_string(info.param);
                         });

}  // namespace
}  // namespace carole::train
