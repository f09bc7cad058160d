// Compares fake quantization with values that were recorded with TensorFlow's rewriter
// (tests/data/quantize/ops.json), on each backend. Finite differences cannot see its gradient, so
// that is recorded, too.
#include "src/backend/ops/fake_quant.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/core/hash.h"
#include "tests/backend/conformance.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"
#include "tests/support/test_data.h"

namespace carole::testing {
namespace {

using nlohmann::json;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::IsNan;
using ::testing::Pointwise;
using Range = FakeQuantAttributes::Range;

const json& Recorded() {
  static const json recorded = json::parse(std::ifstream(TestData() + "/quantize/ops.json"));
  return recorded;
}

// The recorded input of a case: u of tests/golden/formula.h times an amplitude.
Elements InputOf(const json& c, size_t count) {
  const uint64_t hash = Fnv1a64("fq/" + c["name"].get<std::string>());
  Elements x(count);
  for (size_t i = 0; i < count; ++i) {
    const double u = 2.0 * static_cast<double>(SplitMix64(hash + i) >> 11) * 0x1p-53 - 1.0;
    x[i] = static_cast<float>(c["amplitude"].get<double>() * u);
  }
  return x;
}

FakeQuantAttributes AttributesOf(const json& c) {
  return {.bits = c["bits"], .narrow = c["narrow"]};
}

// The codes of quantized values.
Elements CodesOf(Elements y, const QuantGrid<double>& grid) {
  for (double& v : y) v = std::round(v / grid.scale + grid.zero_point);
  return y;
}

class FakeQuantValues : public ::testing::TestWithParam<TestedBackend> {
 protected:
  void SetUp() override {
    if (const std::string problem = GetParam().unavailable_reason(); !problem.empty())
      GTEST_SKIP() << "skipped: " << problem;
    backend_ = GetParam().make(2);
    memory_ = std::make_unique<UseMemoryOf>(*backend_);
  }

  // Expects the recorded codes and gradient of a case with this range and codes.
  void ExpectRecorded(const json& c, const json& codes, bool in_double) const {
    const Elements x = InputOf(c, codes.size()), min{c["min"]}, max{c["max"]};
    const TensorSpec values = PlainSpec({static_cast<int64_t>(x.size())});
    OpSpec forward = FakeQuantSpec(values, AttributesOf(c)),
           backward = FakeQuantBackwardSpec(values, AttributesOf(c));
    if (in_double) {
      forward = InDouble(forward);
      backward = InDouble(backward);
    }
    const FakeQuantAttributes a = AttributesOf(c);
    QuantGrid<double> grid(min[0], max[0], a.smallest_code(), a.largest_code());
    EXPECT_NEAR(grid.scale / c["scale"].get<double>(), 1, 1e-7);
    if (!in_double) {
      // The zero point is rounded from an fp32 number.
      grid.zero_point = QuantGrid<float>(static_cast<float>(min[0]), static_cast<float>(max[0]),
                                         static_cast<float>(a.smallest_code()),
                                         static_cast<float>(a.largest_code()))
                            .zero_point;
    } else {
      EXPECT_EQ(grid.zero_point, c["zero_point"].get<double>());
    }
    const Elements y = RunPlain(*backend_, forward, {x, min, max, {}, {}, {}, {}, {}, {}})[0];
    EXPECT_EQ(CodesOf(y, grid), codes.get<Elements>());
    const Elements dx =
        RunPlain(*backend_, backward, {Elements(x.size(), 1), x, min, max, {}, {}})[0];
    // The recorded gradient belongs to the zero point in double.
    if (grid.zero_point != c["zero_point"].get<double>()) return;
    EXPECT_EQ(dx, c["gradient_of_ones"].get<Elements>());
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<UseMemoryOf> memory_;
};

TEST_P(FakeQuantValues, CodesAndGradientsAreRecordedOnes) {
  int cases = 0;
  for (const json& c : Recorded()["fake_quant_ops"]) {
    if (c["codes"].is_null()) continue;  // the empty range has a test of its own
    SCOPED_TRACE(c["name"].get<std::string>());
    ExpectRecorded(c, c.contains("codes_float32") ? c["codes_float32"] : c["codes"], false);
    if (GetParam().name == "reference") ExpectRecorded(c, c["codes"], true);
    ++cases;
  }
  EXPECT_EQ(cases, 12);
}

TEST_P(FakeQuantValues, AnEmptyRangeGivesZerosAndPassesGradients) {
  const TensorSpec values = PlainSpec({3});
  const Elements x{-1, 0, 2}, zero{0};
  EXPECT_EQ(
      RunPlain(*backend_, FakeQuantSpec(values, {}), {x, zero, zero, {}, {}, {}, {}, {}, {}})[0],
      Elements({0, 0, 0}));
  EXPECT_EQ(
      RunPlain(*backend_, FakeQuantBackwardSpec(values, {}), {{4, 5, 6}, x, zero, zero, {}, {}})[0],
      Elements({4, 5, 6}));
}

// Each batch has two values. The averages of 12 batches in a row have the recorded bits in fp32.
TEST_P(FakeQuantValues, AveragesAreRecordedOnes) {
  for (const bool in_double : {false, true}) {
    if (in_double && GetParam().name != "reference") continue;  // others have no fp64
    OpSpec spec = FakeQuantSpec(PlainSpec({2, 1}), {.range = Range::kAverage});
    if (in_double) spec = InDouble(spec);
    const auto near = [&](const Elements& want) {
      return Pointwise(DoubleNear(in_double ? 1e-6 : 0), want);
    };
    std::vector<Elements> in(spec.inputs.size(), Elements{0});
    for (const json& row : Recorded()["ema"]["steps"]) {
      in[0] = row[0].get<Elements>();
      std::vector<Elements> after;
      RunPlain(*backend_, spec, in, {}, &after);
      in = after;
      constexpr auto kIn = kPosition<FakeQuantInputs>;
      EXPECT_THAT(after[kIn.min], near({row[1][0]}));
      EXPECT_THAT(after[kIn.max], near({row[1][1]}));
      EXPECT_THAT(after[kIn.biased_min], near({row[2][0]}));
      EXPECT_THAT(after[kIn.biased_max], near({row[2][1]}));
    }
    EXPECT_EQ(in[kPosition<FakeQuantInputs>.min_steps], Elements{12});
    EXPECT_EQ(in[kPosition<FakeQuantInputs>.max_steps], Elements{12});
  }
}

// The ends of the latest range always include 0, and the new range is used at once.
TEST_P(FakeQuantValues, TheLatestRangeIsThatOfTheTensor) {
  const OpSpec spec = FakeQuantSpec(PlainSpec({4}), {.range = Range::kLatest, .bits = 2});
  std::vector<Elements> after;
  const Elements y = RunPlain(
      *backend_, spec, {{0.4, 3, 1.6, 0.5}, {-7}, {7}, {}, {}, {}, {}, {}, {}}, {}, &after)[0];
  EXPECT_EQ(y, Elements({0, 3, 2, 1}));
  EXPECT_EQ(after[kPosition<FakeQuantInputs>.min], Elements{0});
  EXPECT_EQ(after[kPosition<FakeQuantInputs>.max], Elements{3});
}

// dx = dy + l2_weight * y inside the range; before the delay has ended, y is x. Steps are 1/2.
TEST_P(FakeQuantValues, L2RegularizationAddsQuantizedValues) {
  const TensorSpec values = PlainSpec({5});
  const auto run = [&](const FakeQuantAttributes& a, double max, const Elements& step) {
    return RunPlain(*backend_, FakeQuantBackwardSpec(values, a, true),
                    {{1, 1, 1, 1, 8}, {-0.5, 0.25, 0.75, 1.5, 9}, {0}, {max}, step, {2}})[0];
  };
  EXPECT_EQ(run({.bits = 2}, 1.5, {}), Elements({0, 2, 3, 4, 0}));
  EXPECT_EQ(run({.bits = 2, .delay = 5}, 1.5, {4}), Elements({0, 1.5, 2.5, 4, 26}));
  EXPECT_EQ(run({.bits = 2, .delay = 5}, 1.5, {5}), Elements({0, 2, 3, 4, 0}));
  EXPECT_EQ(run({.bits = 2}, 0, {}), Elements({1, 1, 1, 1, 8}));
}

// A NaN reaches the loss in each kind of range, also in one that is empty.
TEST_P(FakeQuantValues, NanStaysNan) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const Range range : {Range::kFixed, Range::kLatest, Range::kAverage}) {
    for (const double max : {0.0, 2.0}) {
      const OpSpec spec = FakeQuantSpec(PlainSpec({1, 20, 1, 1}), {.range = range});
      Elements x(20, max);
      x[3] = x[18] = kNan;
      const Elements y = RunPlain(*backend_, spec, {x, {0}, {max}, {0}, {0}, {0}, {0}, {}, {}})[0];
      EXPECT_THAT(y[3], IsNan());
      EXPECT_THAT(y[18], IsNan());
      EXPECT_FALSE(std::isnan(y[4]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FakeQuantValues, ::testing::ValuesIn(kTested),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace carole::testing
