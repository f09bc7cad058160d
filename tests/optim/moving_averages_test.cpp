#include "src/optim/moving_averages.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/core/error.h"
#include "tests/golden/formula.h"
#include "tests/support/test_data.h"

namespace carole::optim {
namespace {

using nlohmann::json;

// Value number i of the recorded variable or gradient of this name (tests/golden/formula.h).
float FormulaValue(std::string_view name, size_t i) {
  return static_cast<float>(golden::Uniform(Fnv1a64(name), i));
}

const std::unique_ptr<Backend> backend = MakeReferenceBackend(1);
constexpr bool kApplied = true;

std::span<std::byte> Bytes(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

std::vector<float> Shadow(const MovingAverages& averages) {
  const auto* data = reinterpret_cast<const float*>(averages.shadow(0).data());
  return {data, data + averages.shadow(0).size() / sizeof(float)};
}

TEST(MovingAveragesTest, EqualTheRecordedOnes) {
  const json recorded = json::parse(std::ifstream(TestData() + "/optimizers.json"));
  ASSERT_GE(recorded["moving_averages"].size(), 2U);
  for (const json& row : recorded["moving_averages"]) {
    std::vector<float> values;
    for (size_t i = 0; i < 5; ++i) values.push_back(FormulaValue("var", i));
    MovingAverages averages(row["decay"], DType::kF32, {Bytes(values)}, *backend);
    averages.Reset();
    for (const json& step : row["rows_step_shadow"]) {
      const int64_t done = step[0];
      const std::string grad = "grad/" + std::to_string(done - 1);
      for (size_t i = 0; i < 5; ++i) values[i] -= 0.1F * FormulaValue(grad, i);
      averages.Update(done, &kApplied);
      const std::vector<float> shadow = Shadow(averages);
      for (size_t i = 0; i < 5; ++i)
        EXPECT_NEAR(shadow[i], step[1][i].get<double>(), 2e-7) << "step " << done;
    }
  }
}

TEST(MovingAveragesTest, SwapExchangesThemWithTheVariables) {
  std::vector<float> values = {1, 2, 3};
  MovingAverages averages(0.5, DType::kF32, {Bytes(values)}, *backend);
  averages.Reset();
  values = {4, 5, 6};
  averages.Swap();
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(Shadow(averages), (std::vector<float>{4, 5, 6}));
}

TEST(MovingAveragesTest, RejectsADecayThatIsOutOfRange) {
  EXPECT_THROW(MovingAverages(1.01, DType::kF32, {}, *backend), UsageError);
  EXPECT_THROW(MovingAverages(-0.5, DType::kF32, {}, *backend), UsageError);
}

}  // namespace
}  // namespace carole::optim
