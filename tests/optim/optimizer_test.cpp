#include "src/optim/optimizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "src/core/error.h"
#include "tests/golden/formula.h"
#include "tests/support/optimizer_options.h"
#include "tests/support/test_data.h"

namespace carole::optim {
namespace {

using carole::testing::With;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Value number i of the recorded variable or gradient of this name (tests/golden/formula.h).
double FormulaValue(std::string_view name, size_t i) { return golden::Uniform(Fnv1a64(name), i); }

const json& Recorded() {
  static const json recorded = json::parse(std::ifstream(TestData() + "/optimizers.json"));
  return recorded;
}

OptimizerOptions OptionsOf(const json& row) {
  const json& p = row["params"];
  const std::string name = row["optimizer"];
  OptimizerOptions o;
  o.weight_decay = 0;
  o.momentum = o.own.rmsprop_momentum = p.value("momentum", 0.0);
  o.own.rmsprop_decay = p.value("decay", o.own.rmsprop_decay);
  o.own.adam_beta1 = p.value("beta1", o.own.adam_beta1);
  o.own.adam_beta2 = p.value("beta2", o.own.adam_beta2);
  o.opt_epsilon = p.value("epsilon", o.opt_epsilon);
  o.own.adadelta_rho = p.value("rho", o.own.adadelta_rho);
  const double initial = p.value("initial_accumulator_value", 0.1);
  o.own.adagrad_initial_accumulator_value = o.own.ftrl_initial_accumulator_value = initial;
  o.own.ftrl_learning_rate_power = p.value("learning_rate_power", o.own.ftrl_learning_rate_power);
  o.own.ftrl_l1 = p.value("l1_regularization_strength", 0.0);
  o.own.ftrl_l2 = p.value("l2_regularization_strength", 0.0);
  return o;
}

// Weights and gradients, and optimizers of them.
template <typename T>
struct Problem {
  explicit Problem(size_t count) : weights(count), gradients(count) {}

  Optimizer Make(std::string_view name, const OptimizerOptions& options,
                 std::vector<Segment> regularized = {}, int threads = 1) {
    return Optimizer(FindOptimizer(name), options,
                     {.dtype = sizeof(T) == 8 ? DType::kF64 : DType::kF32,
                      .weights = reinterpret_cast<std::byte*>(weights.data()),
                      .gradients = reinterpret_cast<const std::byte*>(gradients.data()),
                      .count = static_cast<int64_t>(weights.size()),
                      .regularized = std::move(regularized)},
                     *(backend = MakeReferenceBackend(threads)));
  }

  std::vector<T> weights, gradients;
  std::unique_ptr<Backend> backend;  // of the last optimizer
};

// Runs ten steps of the recorded problem. Keeps the weights after each step and the final slots.
// The five elements of the recording are repeated up to `count`, so that vector registers are
// filled.
template <typename T>
struct Trajectory {
  Trajectory(const json& row, size_t count) : problem(count) {
    for (size_t i = 0; i < count; ++i)
      problem.weights[i] = static_cast<float>(FormulaValue("var", i % 5));
    Optimizer optimizer =
        problem.Make(row["optimizer"].template get<std::string>(), OptionsOf(row));
    // TensorFlow's ftrl rounds the learning rate to fp32 even in a graph of doubles. No other
    // optimizer does.
    const double exact_rate = row["params"]["learning_rate"];
    const double rate = row["optimizer"] == "ftrl" ? static_cast<float>(exact_rate) : exact_rate;
    for (int step = 0; step < 10; ++step) {
      const std::string name = "grad/" + std::to_string(step);
      for (size_t i = 0; i < count; ++i)
        problem.gradients[i] = static_cast<float>(FormulaValue(name, i % 5));
      optimizer.BeginStep(rate);
      optimizer.Update();
      optimizer.EndStep();
      weights.push_back(problem.weights);
    }
    for (size_t s = 0; s < optimizer.slots().size(); ++s) {
      const T* data = reinterpret_cast<const T*>(optimizer.slot(static_cast<int>(s)));
      slots[optimizer.slots()[s].name].assign(data, data + count);
    }
  }

  Problem<T> problem;
  std::vector<std::vector<T>> weights;
  std::map<std::string, std::vector<T>> slots;
};

// The names that our slots have in the recording.
const std::map<std::string, std::string> kRecordedSlots = {
    {"Momentum", "momentum"},  {"RMSProp", "rms"},
    {"RMSProp_1", "momentum"}, {"Adam", "m"},
    {"Adam_1", "v"},           {"Adagrad", "accumulator"},
    {"Adadelta", "accum"},     {"Adadelta_1", "accum_update"},
    {"Ftrl", "accum"},         {"Ftrl_1", "linear"}};

constexpr size_t kCount = 67;  // some full vectors and a remainder, on every CPU

class RecordedOptimizer : public ::testing::TestWithParam<size_t> {
 protected:
  const json& row() const { return Recorded()["optimizers"][GetParam()]; }
};

TEST_P(RecordedOptimizer, EqualsTheRecordingInDouble) {
  const Trajectory<double> t(row(), kCount);
  for (int step = 0; step < 10; ++step) {
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(t.weights[step][i], row()["values_f64"][step][i % 5].get<double>(), 2e-12)
          << "step " << step << " element " << i;
    }
  }
  for (const auto& [name, values] : t.slots) {
    const json& want = row()["slots_final_f64"][kRecordedSlots.at(name)];
    for (size_t i = 0; i < kCount; ++i) {
      const double expected = want[i % 5];
      EXPECT_NEAR(values[i], expected, 2e-12 * std::max(1.0, std::abs(expected))) << name;
    }
  }
  EXPECT_EQ(t.slots.size(), row()["slots_final_f64"].size());
}

TEST_P(RecordedOptimizer, EqualsTheRecordingInFloat) {
  const Trajectory<float> t(row(), kCount);
  // The tolerance is a few roundings of values around 1 per step. It is larger for ftrl, which
  // divides differences of large sums by the learning rate and so magnifies rounding errors.
  const bool ftrl = row()["optimizer"] == "ftrl";
  for (int step = 0; step < 10; ++step) {
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(t.weights[step][i], row()["values_f32"][step][i % 5].get<double>(),
                  ftrl ? 4e-7 : 1.2e-7)
          << "step " << step << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecordedOptimizer,
                         ::testing::Range(size_t{0}, Recorded()["optimizers"].size()),
                         [](const auto& info) {
                           const json& row = Recorded()["optimizers"][info.param];
                           return row["optimizer"].get<std::string>() + "_" +
                                  row["set"].get<std::string>();
                         });

TEST(OptimizerTest, SlotsHaveTensorFlowsNamesAndInitialValues) {
  const std::map<std::string, std::vector<std::pair<std::string, double>>> want = {
      {"sgd", {}},
      {"momentum", {{"Momentum", 0}}},
      {"lamb", {{"LAMB", 0}, {"LAMB_1", 0}}},
      {"lars", {{"Momentum", 0}}},
      {"rmsprop", {{"RMSProp", 1}, {"RMSProp_1", 0}}},
      {"adam", {{"Adam", 0}, {"Adam_1", 0}}},
      {"adamw", {{"AdamW", 0}, {"AdamW_1", 0}}},
      {"adagrad", {{"Adagrad", 0.1}}},
      {"adadelta", {{"Adadelta", 0}, {"Adadelta_1", 0}}},
      {"ftrl", {{"Ftrl", 0.1}, {"Ftrl_1", 0}}}};
  EXPECT_EQ(std::size(kOptimizers), want.size());
  for (const OptimizerEntry& entry : kOptimizers) {
    Problem<float> problem(16);
    const Optimizer optimizer = problem.Make(entry.name, {});
    const auto& expected = want.at(std::string(entry.name));
    ASSERT_EQ(optimizer.slots().size(), expected.size()) << entry.name;
    for (size_t s = 0; s < expected.size(); ++s) {
      EXPECT_EQ(optimizer.slots()[s].name, expected[s].first);
      const float* data = reinterpret_cast<const float*>(optimizer.slot(static_cast<int>(s)));
      EXPECT_EQ(data[15], static_cast<float>(expected[s].second)) << expected[s].first;
    }
  }
}

TEST(OptimizerTest, AdamKeepsTheBetaPowers) {
  Problem<float> problem(16);
  Optimizer optimizer = problem.Make("adam", {});
  ASSERT_EQ(optimizer.scalars().size(), 2u);
  EXPECT_EQ(optimizer.scalars()[0].name, "beta1_power");
  EXPECT_EQ(optimizer.scalars()[0].value, 0.9f);
  EXPECT_EQ(optimizer.scalars()[1].name, "beta2_power");
  optimizer.BeginStep(0.1);
  optimizer.Update();
  optimizer.EndStep();
  EXPECT_EQ(optimizer.scalars()[0].value, 0.9f * 0.9f);
  EXPECT_EQ(optimizer.scalars()[1].value, 0.999f * 0.999f);
  EXPECT_THROW(optimizer.SetScalar("beta3_power", 1), DataError);
}

TEST(OptimizerTest, NesterovLooksAhead) {
  Problem<double> problem(1);
  problem.weights = {1.0};
  Optimizer optimizer = problem.Make(
      "momentum", With({.weight_decay = 0, .momentum = 0.5}, "momentum", {{"nesterov", 1}}));
  const double want[] = {1 - 0.1 * (2 + 0.5 * 2), 0.7 - 0.1 * (4 + 0.5 * (0.5 * 2 + 4))};
  for (int step = 0; step < 2; ++step) {
    problem.gradients = {step == 0 ? 2.0 : 4.0};
    optimizer.BeginStep(0.1);
    optimizer.Update();
    optimizer.EndStep();
    EXPECT_NEAR(problem.weights[0], want[step], 1e-15);
  }
}

// Two steps computed by hand. The learning rate of a variable is 2 * 0.5 * |w| / (|g| + 0.1 * |w|).
// For the first variable |w| = 5 and |g| = 2.
TEST(OptimizerTest, LarsGivesEachVariableItsOwnRate) {
  Problem<double> problem(6);
  problem.weights = {3, 4, 30, 40, 1, 0};
  problem.gradients = {0, 2, 8, 6, 1, 0};
  Optimizer optimizer = problem.Make(
      "lars", With({.weight_decay = 0.1, .momentum = 0.5}, "lars", {{"lars_eta", 0.5}}),
      {{0, 2}, {2, 4}});
  const double first = 2 * 0.5 * 5 / (2 + 0.5), second = 2 * 0.5 * 50 / (10 + 5.0);
  optimizer.BeginStep(2);
  optimizer.Update();
  optimizer.EndStep();
  const std::vector<double> once = {3 - first * 0.3,       4 - first * 2.4, 30 - second * 11,
                                    40 - second * (6 + 4), 1 - 2.0,         0};
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(problem.weights[i], once[i], 1e-7) << i;
  // Without gradients, the rate is that of the step, and momentum continues.
  problem.gradients = {0, 0, 0, 0, 0, 0};
  const std::vector<double> before = problem.weights;
  optimizer.BeginStep(2);
  optimizer.Update();
  optimizer.EndStep();
  EXPECT_NEAR(problem.weights[0], before[0] - 0.5 * first * 0.3 - 2 * 0.1 * before[0], 1e-7);
  EXPECT_NEAR(problem.weights[4], before[4] - 0.5 * 2.0, 1e-7);
}

TEST(OptimizerTest, ClipsToTheGlobalNorm) {
  for (double clip : {10.0, 2.5}) {
    Problem<double> problem(4);
    problem.weights = {1, 1, 1, 1};
    problem.gradients = {0, 3, 0, 4};
    Optimizer optimizer =
        problem.Make("sgd", {.weight_decay = 0.1, .clip_gradient_norm = clip}, {{0, 2}});
    optimizer.BeginStep(0.1);
    EXPECT_THROW(optimizer.Update(), InternalError);  // nothing was inspected yet
    optimizer.Inspect(2, 4);
    optimizer.Inspect(0, 2);
    EXPECT_NEAR(GradientNorm(optimizer.Sums(), 1), 5, 1e-12);
    optimizer.Update();
    const double scale = std::min(1.0, clip / 5);
    EXPECT_NEAR(problem.weights[0], 1 - 0.1 * 0.1, 1e-12);
    EXPECT_NEAR(problem.weights[1], 1 - 0.1 * (3 * scale + 0.1), 1e-12);
    EXPECT_NEAR(problem.weights[3], 1 - 0.1 * 4 * scale, 1e-12);
  }
}

TEST(OptimizerTest, NormIsFiniteOnlyIfAllGradientsAre) {
  constexpr int64_t kSize = 9001;
  for (int threads : {1, 3}) {
    Problem<float> problem(kSize);
    Optimizer optimizer = problem.Make("sgd", {}, {}, threads);
    auto norm = [&] {
      optimizer.BeginStep(0.1);
      optimizer.Inspect(0, kSize);
      return GradientNorm(optimizer.Sums(), 1);
    };
    problem.gradients.assign(kSize, 3e38F);  // large but finite
    EXPECT_NEAR(norm(), 3e38 * std::sqrt(9001.0), 1e33);
    problem.gradients[8999] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(std::isfinite(norm()));
    problem.gradients[8999] = -std::numeric_limits<float>::infinity();
    EXPECT_FALSE(std::isfinite(norm()));
  }
}

template <typename T>
void FillRandomly(Problem<T>& problem) {
  for (size_t i = 0; i < problem.weights.size(); ++i) {
    problem.weights[i] = static_cast<T>(FormulaValue("w", i));
    problem.gradients[i] = static_cast<T>(FormulaValue("g", i));
  }
}

TEST(OptimizerTest, RegularizationIsAddedToTheGradientAndReported) {
  for (const OptimizerEntry& entry : kOptimizers) {
    const UpdatePlan plan = entry.plan({});
    // These depend on which weights are regularized in other ways.
    if (plan.trust_norm != TrustNorm::kNone || plan.decays_weights) continue;
    const OptimizerOptions options{.weight_decay = 0.01};
    Problem<double> plain(9000), explicit_l2(9000);
    FillRandomly(plain);
    FillRandomly(explicit_l2);
    const std::vector<Segment> regularized = {{16, 64}, {64, 5000}, {8000, 9000}};
    double loss = 0;
    for (const Segment& s : regularized) {
      for (int64_t i = s.begin; i < s.end; ++i) {
        const double w = explicit_l2.weights[i];
        loss += 0.5 * 0.01 * w * w;
        explicit_l2.gradients[i] += 0.01 * w;
      }
    }
    Optimizer a = plain.Make(entry.name, options, regularized);
    Optimizer b = explicit_l2.Make(entry.name, options);
    for (Optimizer* o : {&a, &b}) {
      o->BeginStep(0.1);
      o->Update();
    }
    EXPECT_NEAR(RegularizationLoss(a.Sums(), 0.01), loss, 1e-12) << entry.name;
    EXPECT_EQ(RegularizationLoss(b.Sums(), 0.01), 0) << entry.name;
    EXPECT_EQ(plain.weights, explicit_l2.weights) << entry.name;
  }
}

// Warm-up begins with a rate of 0. (Ftrl divides by the rate.)
TEST(OptimizerTest, LearningRateOfZeroChangesNothing) {
  for (const OptimizerEntry& entry : kOptimizers) {
    Problem<float> problem(100);
    FillRandomly(problem);
    const std::vector<float> before = problem.weights;
    Optimizer optimizer = problem.Make(entry.name, {});
    optimizer.BeginStep(0);
    optimizer.Inspect(0, 100);
    optimizer.Update();
    optimizer.EndStep();
    EXPECT_EQ(problem.weights, before) << entry.name;
    optimizer.BeginStep(0.1);
    optimizer.Inspect(0, 100);
    optimizer.Update();
    EXPECT_NE(problem.weights, before) << entry.name;
    for (float w : problem.weights) ASSERT_TRUE(std::isfinite(w)) << entry.name;
  }
}

TEST(OptimizerTest, NumberOfThreadsDoesNotChangeTheWeights) {
  constexpr int64_t kSize = 100000;
  for (const OptimizerEntry& entry : kOptimizers) {
    const std::vector<Segment> regularized = {{0, 30000}, {60000, 99000}};
    Problem<float> one_thread(kSize), three_threads(kSize);
    FillRandomly(one_thread);
    FillRandomly(three_threads);
    Optimizer a = one_thread.Make(entry.name, {.weight_decay = 0.01}, regularized, 1);
    Optimizer b = three_threads.Make(entry.name, {.weight_decay = 0.01}, regularized, 3);
    for (int step = 0; step < 3; ++step) {
      for (Optimizer* o : {&a, &b}) {
        o->BeginStep(0.1);
        o->Inspect(0, kSize);
        o->Update();
        o->EndStep();
      }
      const double squares = a.Sums().weight_squares;
      EXPECT_NEAR(b.Sums().weight_squares, squares, 1e-6 * squares);
    }
    EXPECT_EQ(one_thread.weights, three_threads.weights) << entry.name;
  }
}

TEST(OptimizerTest, PaddingStaysZero) {
  for (const OptimizerEntry& entry : kOptimizers) {
    for (bool zero_slots : {false, true}) {  // after a resume, slots of padding are 0
      Problem<float> problem(128);
      Optimizer optimizer = problem.Make(entry.name, {}, {{0, 128}});
      for (size_t s = 0; zero_slots && s < optimizer.slots().size(); ++s)
        std::fill_n(optimizer.slot(static_cast<int>(s)), optimizer.slot_bytes(), std::byte{0});
      for (int step = 0; step < 5; ++step) {
        optimizer.BeginStep(0.1);
        optimizer.Inspect(0, 128);
        optimizer.Update();
        optimizer.EndStep();
      }
      EXPECT_EQ(problem.weights, std::vector<float>(128, 0.0f)) << entry.name;
    }
  }
}

TEST(OptimizerTest, ChangesNothingIfAGradientOrTheLossIsNotFinite) {
  Problem<float> problem(64);
  problem.gradients[3] = INFINITY;
  Optimizer optimizer = problem.Make("momentum", {});
  optimizer.BeginStep(0.1);
  EXPECT_THROW(optimizer.Inspect(32, 65), InternalError);
  optimizer.Inspect(0, 64);
  optimizer.Update();
  EXPECT_FALSE(optimizer.Sums().is_finite);
  problem.gradients[3] = 0;
  const float loss = NAN;
  for (bool spoiled : {true, false}) {
    optimizer.BeginStep(0.1);
    optimizer.Inspect(0, 64);
    auto* bytes = reinterpret_cast<std::byte*>(const_cast<float*>(&loss));
    if (spoiled) optimizer.InspectLoss({.data = bytes, .shape = {}});
    problem.gradients[5] = 1;
    EXPECT_EQ(problem.weights, std::vector<float>(64, 0)) << spoiled;
    optimizer.Update();
    EXPECT_EQ(optimizer.Sums().is_finite, !spoiled);
  }
  EXPECT_EQ(problem.weights[5], -0.1F);
}

TEST(OptimizerTest, ErrorsNameTheFlag) {
  Problem<float> problem(16);
  EXPECT_THAT([] { FindOptimizer("adamax"); },
              ThrowsMessage<UsageError>(HasSubstr("got adamax, want one of adadelta, adagrad")));
  EXPECT_THAT([&] { problem.Make("rmsprop", {.opt_epsilon = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("\x1f$(opt_epsilon)")));
  EXPECT_THAT([&] { problem.Make("momentum", {.momentum = 1}); },
              ThrowsMessage<UsageError>(HasSubstr("\x1f$(momentum): out of range: got 1")));
  EXPECT_THAT([&] { problem.Make("sgd", {.clip_gradient_norm = -1}); },
              ThrowsMessage<UsageError>(HasSubstr("\x1f$(clip_gradient_norm)")));
  EXPECT_THAT([&] { problem.Make("sgd", {.weight_decay = -1}); },
              ThrowsMessage<UsageError>(HasSubstr("\x1f$(weight_decay)")));
  EXPECT_THAT(
      [&] {
        problem.Make("lars", With({}, "lars", {{"lars_eta", 0}}));
      },
      ThrowsMessage<UsageError>(HasSubstr("\x1f$(lars_eta)")));
  const auto ftrl = With({}, "ftrl", {{"ftrl_learning_rate_power", 0.5}});
  EXPECT_THAT([&] { problem.Make("ftrl", ftrl); },
              ThrowsMessage<UsageError>(HasSubstr("\x1f$(ftrl_learning_rate_power)")));
}

}  // namespace
}  // namespace carole::optim
