#include "src/optim/optimizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "src/core/error.h"
#include "tests/golden/formula.h"
#include "tests/support/test_data.h"

namespace carole::optim {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

double FormulaU(std::string_view name, size_t i) { return golden::Uniform(Fnv1a64(name), i); }

const json& Recorded() {
  static const json recorded = json::parse(std::ifstream(TestData() + "/optimizers.json"));
  return recorded;
}

OptimizerOptions OptionsOf(const json& row) {
  const json& p = row["params"];
  const std::string name = row["optimizer"];
  OptimizerOptions o;
  o.weight_decay = 0;
  o.momentum = o.rmsprop_momentum = p.value("momentum", 0.0);
  o.rmsprop_decay = p.value("decay", o.rmsprop_decay);
  o.adam_beta1 = p.value("beta1", o.adam_beta1);
  o.adam_beta2 = p.value("beta2", o.adam_beta2);
  o.opt_epsilon = p.value("epsilon", o.opt_epsilon);
  o.adadelta_rho = p.value("rho", o.adadelta_rho);
  const double initial = p.value("initial_accumulator_value", 0.1);
  o.adagrad_initial_accumulator_value = o.ftrl_initial_accumulator_value = initial;
  o.ftrl_learning_rate_power = p.value("learning_rate_power", o.ftrl_learning_rate_power);
  o.ftrl_l1 = p.value("l1_regularization_strength", 0.0);
  o.ftrl_l2 = p.value("l2_regularization_strength", 0.0);
  return o;
}

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

// Weights after each of ten steps of the recorded problem, repeated over `count` elements so that
// vectors are filled, and the final slots.
template <typename T>
struct Trajectory {
  Trajectory(const json& row, size_t count) : problem(count) {
    for (size_t i = 0; i < count; ++i)
      problem.weights[i] = static_cast<float>(FormulaU("var", i % 5));
    Optimizer optimizer =
        problem.Make(row["optimizer"].template get<std::string>(), OptionsOf(row));
    // TensorFlow's ftrl, and it alone, rounds the rate in a graph of doubles.
    const double exact_rate = row["params"]["learning_rate"];
    const double rate = row["optimizer"] == "ftrl" ? static_cast<float>(exact_rate) : exact_rate;
    for (int step = 0; step < 10; ++step) {
      const std::string name = "grad/" + std::to_string(step);
      for (size_t i = 0; i < count; ++i)
        problem.gradients[i] = static_cast<float>(FormulaU(name, i % 5));
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

// The recording's names of our slots.
const std::map<std::string, std::string> kRecordedSlots = {
    {"Momentum", "momentum"},  {"RMSProp", "rms"},
    {"RMSProp_1", "momentum"}, {"Adam", "m"},
    {"Adam_1", "v"},           {"Adagrad", "accumulator"},
    {"Adadelta", "accum"},     {"Adadelta_1", "accum_update"},
    {"Ftrl", "accum"},         {"Ftrl_1", "linear"}};

constexpr size_t kCount = 67;  // full vectors and a rest, on every CPU

class RecordedOptimizer : public ::testing::TestWithParam<size_t> {
 protected:
  const json& row() const { return Recorded()["optimizers"][GetParam()]; }
};

TEST_P(RecordedOptimizer, DoubleFollowsEveryStep) {
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

TEST_P(RecordedOptimizer, FloatFollowsEveryStep) {
  const Trajectory<float> t(row(), kCount);
  // A few roundings of values around 1 for each step. Ftrl divides differences of large sums by the
  // rate, which magnifies them.
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

TEST(OptimizerTest, SlotsHaveTensorFlowsNamesAndFirstValues) {
  const std::map<std::string, std::vector<std::pair<std::string, double>>> want = {
      {"sgd", {}},
      {"momentum", {{"Momentum", 0}}},
      {"lars", {{"Momentum", 0}}},
      {"rmsprop", {{"RMSProp", 1}, {"RMSProp_1", 0}}},
      {"adam", {{"Adam", 0}, {"Adam_1", 0}}},
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

TEST(OptimizerTest, AdamKeepsItsPowers) {
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
  Optimizer optimizer =
      problem.Make("momentum", {.weight_decay = 0, .momentum = 0.5, .nesterov = true});
  const double want[] = {1 - 0.1 * (2 + 0.5 * 2), 0.7 - 0.1 * (4 + 0.5 * (0.5 * 2 + 4))};
  for (int step = 0; step < 2; ++step) {
    problem.gradients = {step == 0 ? 2.0 : 4.0};
    optimizer.BeginStep(0.1);
    optimizer.Update();
    optimizer.EndStep();
    EXPECT_NEAR(problem.weights[0], want[step], 1e-15);
  }
}

// Two steps by hand: |w| = 5, then each variable's rate is 0.5 * |w| / (|g| + 0.1 * |w|) of 2.
TEST(OptimizerTest, LarsGivesEachVariableItsOwnRate) {
  Problem<double> problem(6);
  problem.weights = {3, 4, 30, 40, 1, 0};
  problem.gradients = {0, 2, 8, 6, 1, 0};
  Optimizer optimizer = problem.Make(
      "lars", {.weight_decay = 0.1, .momentum = 0.5, .lars_eta = 0.5}, {{0, 2}, {2, 4}});
  const double first = 2 * 0.5 * 5 / (2 + 0.5), second = 2 * 0.5 * 50 / (10 + 5.0);
  optimizer.BeginStep(2);
  optimizer.Update();
  optimizer.EndStep();
  const std::vector<double> once = {3 - first * 0.3,       4 - first * 2.4, 30 - second * 11,
                                    40 - second * (6 + 4), 1 - 2.0,         0};
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(problem.weights[i], once[i], 1e-7) << i;
  problem.gradients = {0, 0, 0, 0, 0, 0};  // no gradient: the step's own rate, and momentum
  const std::vector<double> before = problem.weights;
  optimizer.BeginStep(2);
  optimizer.Update();
  optimizer.EndStep();
  EXPECT_NEAR(problem.weights[0], before[0] - 0.5 * first * 0.3 - 2 * 0.1 * before[0], 1e-7);
  EXPECT_NEAR(problem.weights[4], before[4] - 0.5 * 2.0, 1e-7);
}

TEST(OptimizerTest, LongGradientsAreCutToTheNorm) {
  for (double clip : {10.0, 2.5}) {
    Problem<double> problem(4);
    problem.weights = {1, 1, 1, 1};
    problem.gradients = {0, 3, 0, 4};
    Optimizer optimizer =
        problem.Make("sgd", {.weight_decay = 0.1, .clip_gradient_norm = clip}, {{0, 2}});
    optimizer.BeginStep(0.1);
    EXPECT_THROW(optimizer.Update(), InternalError);  // the norm is not known yet
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

TEST(OptimizerTest, NormTellsWhatIsNotFinite) {
  constexpr int64_t kSize = 9001;
  for (int threads : {1, 3}) {
    Problem<float> problem(kSize);
    Optimizer optimizer = problem.Make("sgd", {}, {}, threads);
    auto norm = [&] {
      optimizer.BeginStep(0.1);
      optimizer.Inspect(0, kSize);
      return GradientNorm(optimizer.Sums(), 1);
    };
    problem.gradients.assign(kSize, 3e38F);  // large, but numbers
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
    problem.weights[i] = static_cast<T>(FormulaU("w", i));
    problem.gradients[i] = static_cast<T>(FormulaU("g", i));
  }
}

TEST(OptimizerTest, RegularizationIsPartOfTheGradientAndReported) {
  for (const OptimizerEntry& entry : kOptimizers) {
    if (entry.name == "lars") continue;  // its rates depend on what is regularized
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

// Warm-ups begin with it. (Ftrl divides by the rate.)
TEST(OptimizerTest, RateOfZeroMovesNothing) {
  for (const OptimizerEntry& entry : kOptimizers) {
    Problem<float> problem(100);
    FillRandomly(problem);
    const std::vector<float> before = problem.weights;
    Optimizer optimizer = problem.Make(entry.name, {});
    optimizer.BeginStep(0);
    optimizer.Update();
    optimizer.EndStep();
    EXPECT_EQ(problem.weights, before) << entry.name;
    optimizer.BeginStep(0.1);
    optimizer.Update();
    EXPECT_NE(problem.weights, before) << entry.name;
    for (float w : problem.weights) ASSERT_TRUE(std::isfinite(w)) << entry.name;
  }
}

TEST(OptimizerTest, ThreadsChangeNothing) {
  constexpr int64_t kSize = 100000;
  for (const OptimizerEntry& entry : kOptimizers) {
    const std::vector<Segment> regularized = {{0, 30000}, {60000, 99000}};
    Problem<float> whole(kSize), shared(kSize);
    FillRandomly(whole);
    FillRandomly(shared);
    Optimizer a = whole.Make(entry.name, {.weight_decay = 0.01}, regularized, 1);
    Optimizer b = shared.Make(entry.name, {.weight_decay = 0.01}, regularized, 3);
    for (int step = 0; step < 3; ++step) {
      for (Optimizer* o : {&a, &b}) {
        o->BeginStep(0.1);
        o->Update();
        o->EndStep();
      }
      const double squares = a.Sums().weight_squares;
      EXPECT_NEAR(b.Sums().weight_squares, squares, 1e-6 * squares);
    }
    EXPECT_EQ(whole.weights, shared.weights) << entry.name;
  }
}

TEST(OptimizerTest, PaddingStaysZero) {
  for (const OptimizerEntry& entry : kOptimizers) {
    for (bool zero_slots : {false, true}) {  // as after a resume, which writes zeros there
      Problem<float> problem(128);
      Optimizer optimizer = problem.Make(entry.name, {}, {{0, 128}});
      for (size_t s = 0; zero_slots && s < optimizer.slots().size(); ++s)
        std::fill_n(optimizer.slot(static_cast<int>(s)), optimizer.slot_bytes(), std::byte{0});
      for (int step = 0; step < 5; ++step) {
        optimizer.BeginStep(0.1);
        optimizer.Update();
        optimizer.EndStep();
      }
      EXPECT_EQ(problem.weights, std::vector<float>(128, 0.0f)) << entry.name;
    }
  }
}

TEST(OptimizerTest, ChangesNothingWhereSomethingIsNotFinite) {
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

TEST(OptimizerTest, BadFlagsAreNamed) {
  Problem<float> problem(16);
  EXPECT_THAT([] { FindOptimizer("adamw"); },
              ThrowsMessage<UsageError>(HasSubstr("got adamw, want one of adadelta, adagrad")));
  EXPECT_THAT([&] { problem.Make("rmsprop", {.opt_epsilon = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("--opt_epsilon")));
  EXPECT_THAT([&] { problem.Make("momentum", {.momentum = 1}); },
              ThrowsMessage<UsageError>(HasSubstr("--momentum: makes no sense: got 1")));
  EXPECT_THAT([&] { problem.Make("sgd", {.clip_gradient_norm = -1}); },
              ThrowsMessage<UsageError>(HasSubstr("--clip_gradient_norm")));
  EXPECT_THAT([&] { problem.Make("sgd", {.weight_decay = -1}); },
              ThrowsMessage<UsageError>(HasSubstr("--weight_decay")));
  EXPECT_THAT([&] { problem.Make("lars", {.lars_eta = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("--lars_eta")));
  EXPECT_THAT([&] { problem.Make("ftrl", {.ftrl_learning_rate_power = 0.5}); },
              ThrowsMessage<UsageError>(HasSubstr("--ftrl_learning_rate_power")));
}

}  // namespace
}  // namespace carole::optim
