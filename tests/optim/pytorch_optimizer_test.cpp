// Optimizers that follow PyTorch and timm, compared with ten recorded steps: on the host in float32
// and in double, and on an emulated GPU.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/backend/host_view.h"
#include "src/optim/optimizer.h"
#include "tests/golden/formula.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/optimizer_options.h"
#include "tests/support/test_data.h"
#include "tests/support/walled_backend.h"

namespace carole::optim {
namespace {

using carole::testing::With;
using nlohmann::json;

const json& Recorded() {
  static const json recorded = json::parse(std::ifstream(TestData() + "/optimizers_pytorch.json"));
  return recorded["optimizers"];
}

// The weights are w [2,3] and b [3].
constexpr int64_t kCount = 9;
constexpr Segment kW{0, 6}, kB{6, 9};

double FormulaValue(const std::string& kind, const std::string& step, int64_t i) {
  const std::string name = kind + (i < kW.end ? "/w" : "/b") + step;
  return static_cast<float>(
      golden::Uniform(Fnv1a64(name), static_cast<uint64_t>(i < kW.end ? i : i - kW.end)));
}

OptimizerOptions OptionsOf(const json& row) {
  const json& p = row["params"];
  const std::string name = row["optimizer"];
  OptimizerOptions options{.weight_decay = row["weight_decay_w"]};
  options = With(options, name,
                 {{name + "_beta1", p["betas"][0]},
                  {name + "_beta2", p["betas"][1]},
                  {name + "_epsilon", p["eps"]}});
  if (name != "lamb") return options;
  const json& limit = p["max_grad_norm"];
  return With(options, name,
              {{"lamb_max_grad_norm", limit.is_null() ? 0 : limit.get<double>()},
               {"lamb_trust_clip", p.value("trust_clip", false)},
               {"lamb_always_adapt", p.value("always_adapt", false)}});
}

// Runs the recorded steps with weights of type T. Returns the weights after each step.
template <typename T>
std::vector<std::vector<T>> RunSteps(const json& row, const Backend& backend) {
  const DeviceMemory weights = backend.Allocate(kCount * sizeof(T));
  const DeviceMemory gradients = backend.Allocate(kCount * sizeof(T));
  const auto fill = [&](const DeviceMemory& memory, const std::string& kind,
                        const std::string& step) {
    std::vector<T> values(kCount);
    for (int64_t i = 0; i < kCount; ++i) values[i] = static_cast<T>(FormulaValue(kind, step, i));
    backend.CopyFromHost(memory.get(), reinterpret_cast<const std::byte*>(values.data()),
                         kCount * sizeof(T));
  };
  fill(weights, "var", "");
  const bool b_decays = row["weight_decay_b"] != 0;
  Optimizer optimizer(
      FindOptimizer(row["optimizer"].get<std::string>()), OptionsOf(row),
      {.dtype = sizeof(T) == 8 ? DType::kF64 : DType::kF32,
       .weights = weights.get(),
       .gradients = gradients.get(),
       .count = kCount,
       .regularized = b_decays ? std::vector<Segment>{kW, kB} : std::vector<Segment>{kW},
       .not_regularized = b_decays ? std::vector<Segment>{} : std::vector<Segment>{kB}},
      backend);
  std::vector<std::vector<T>> steps;
  for (size_t step = 0; step < row["values_f64"].size(); ++step) {
    fill(gradients, "grad", "/" + std::to_string(step));
    optimizer.BeginStep(row.contains("lr_per_step") ? row["lr_per_step"][step].get<double>()
                                                    : row["params"]["lr"].get<double>());
    optimizer.Inspect(0, kCount);
    optimizer.Update();
    EXPECT_EQ(RegularizationLoss(optimizer.Sums(), 1), 0);  // weight decay is not in the loss
    optimizer.EndStep();
    const HostView view(backend, weights.get(), kCount * sizeof(T));
    const auto values = view.template as<T>();
    steps.emplace_back(values.begin(), values.end());
  }
  return steps;
}

class PyTorchOptimizer : public ::testing::TestWithParam<size_t> {
 protected:
  template <typename T>
  void ExpectRecorded(const Backend& backend, double tolerance) {
    const json& row = Recorded()[GetParam()];
    const auto steps = RunSteps<T>(row, backend);
    ASSERT_EQ(steps.size(), 10u);
    for (size_t step = 0; step < steps.size(); ++step) {
      for (size_t i = 0; i < kCount; ++i) {
        EXPECT_NEAR(steps[step][i], row["values_f64"][step][i].get<double>(), tolerance)
            << "step " << step << " element " << i;
      }
    }
  }
};

TEST_P(PyTorchOptimizer, EqualsTheRecordingInDouble) {
  ExpectRecorded<double>(*MakeReferenceBackend(1), 1e-12);
}

TEST_P(PyTorchOptimizer, EqualsTheRecordingInFloat) {
  ExpectRecorded<float>(*MakeReferenceBackend(1), 1e-6);
}

TEST_P(PyTorchOptimizer, EqualsTheRecordingOnAnEmulatedGpu) {
  ExpectRecorded<float>(testing::WalledBackend(testing::MakeEmulatedCudaBackend(1)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, PyTorchOptimizer, ::testing::Range(size_t{0}, Recorded().size()),
                         [](const ::testing::TestParamInfo<size_t>& info) {
                           return Recorded()[info.param]["optimizer"].get<std::string>() + "_" +
                                  std::to_string(info.param);
                         });

// A resumed run continues with the number of updates.
TEST(PyTorchOptimizerState, KeepsTheNumberOfUpdates) {
  const auto backend = MakeReferenceBackend(1);
  float weights[4] = {1, 2, 3, 4}, gradients[4] = {1, 1, 1, 1};
  Optimizer optimizer(FindOptimizer("adamw"), {},
                      {.weights = reinterpret_cast<std::byte*>(weights),
                       .gradients = reinterpret_cast<const std::byte*>(gradients),
                       .count = 4},
                      *backend);
  for (int step = 0; step < 3; ++step) {
    optimizer.BeginStep(0.1);
    optimizer.Update();
    optimizer.EndStep();
  }
  ASSERT_EQ(optimizer.scalars().size(), 1u);
  EXPECT_EQ(optimizer.scalars()[0].name, "update_count");
  EXPECT_EQ(optimizer.scalars()[0].value, 3);
}

}  // namespace
}  // namespace carole::optim
