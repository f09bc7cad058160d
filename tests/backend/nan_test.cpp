// A NaN must reach the loss or the weights, where the trainer finds it. Our own activations pass it
// on. The fused ReLUs of libraries may turn it into 0, but then the filter gradient contains it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "src/backend/ops/relu.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"

namespace carole::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool HasNan(const Elements& elements) {
  return std::any_of(elements.begin(), elements.end(), [](double v) { return std::isnan(v); });
}

class NanPropagation : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    if (GetParam() == "onednn" && !OneDnnAvailable())
      GTEST_SKIP() << "skipped: built without oneDNN";
    if (GetParam() == kCudaBackend.name) {
      if (const std::string problem = GpuUnavailableReason(); !problem.empty())
        GTEST_SKIP() << "skipped: " << problem;
      backend_ = kCudaBackend.make(1);
      memory_.emplace(*backend_);
    }
    for (const BackendEntry& entry : kBackends) {
      if (entry.name == GetParam()) backend_ = entry.make(1);
    }
  }

  std::unique_ptr<Backend> backend_;
  std::optional<UseMemoryOf> memory_;
};

TEST_P(NanPropagation, ThroughRelu) {
  for (double ceiling : {0.0, 6.0}) {
    const OpSpec spec = SameShapeSpec(op::kRelu, ReluAttributes{ceiling}, {1, 20, 1, 1}, 1);
    Elements x(20, -1.0);
    x[3] = kNan;
    EXPECT_TRUE(std::isnan(RunPlain(*backend_, spec, {x})[0][3])) << "ceiling " << ceiling;
  }
}

TEST_P(NanPropagation, ThroughReluFusedIntoBatchNorm) {
  for (double ceiling : {0.0, 6.0}) {
    const BatchNormSizes sizes{.x = {2, 16, 2, 2},
                               .attributes = {.training = false, .relu = true, .ceiling = ceiling}};
    Elements x(128, -1.0);
    x[5] = kNan;
    const Elements ones(16, 1.0), zeros(16, 0.0);
    const auto outputs =
        RunPlain(*backend_, BatchNormSpec(sizes), {x, ones, zeros, {}, zeros, ones});
    EXPECT_TRUE(HasNan(outputs[0])) << "ceiling " << ceiling;
  }
}

TEST_P(NanPropagation, ThroughFilterGradientOfConvolution) {
  const ConvSizes sizes = Conv({1, 16, 4, 4}, 16, 3);
  Elements x(256, -1.0);
  x[20] = kNan;
  EXPECT_TRUE(
      HasNan(RunPlain(*backend_, Conv2dBackwardFilterSpec(sizes), {x, Elements(64, 0.0)})[0]));
}

TEST_P(NanPropagation, ThroughFilterGradientOfLinear) {
  const LinearSizes sizes{.n = 4, .c = 32, .k = 16};
  Elements x(128, -1.0);
  x[7] = kNan;
  EXPECT_TRUE(
      HasNan(RunPlain(*backend_, LinearBackwardFilterSpec(sizes), {x, Elements(64, 0.0)})[0]));
}

INSTANTIATE_TEST_SUITE_P(Backends, NanPropagation, ::testing::Values("onednn", "reference", "cuda"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace carole::testing
