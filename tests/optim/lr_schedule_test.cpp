#include "src/optim/lr_schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/core/error.h"
#include "tests/support/test_data.h"

namespace carole::optim {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(LearningRateTest, EqualsTheRecordedSchedulesExactly) {
  const json recorded = json::parse(std::ifstream(TestData() + "/optimizers.json"));
  ASSERT_GE(recorded["schedules"].size(), 8u);
  for (const json& s : recorded["schedules"]) {
    LearningRateOptions options{.type = s["type"],
                                .learning_rate = s["learning_rate"],
                                .end_learning_rate = s["end_learning_rate"],
                                .decay_factor = s["decay_factor"],
                                .num_epochs_per_decay = s["num_epochs_per_decay"],
                                .warmup_epochs = s["warmup_epochs"],
                                .num_samples = s["num_samples"],
                                .batch_size = s["batch_size"]};
    if (s["sync_replicas"]) options.replicas_to_aggregate = s["replicas_to_aggregate"];
    const LearningRate rate(options);
    EXPECT_EQ(rate.decay_steps(), options.type == "fixed" ? 0 : s["decay_steps"].get<int64_t>());
    for (const json& pair : s["values"]) {
      const int64_t step = pair[0];
      EXPECT_EQ(rate.At(step), static_cast<float>(pair[1].get<double>()))
          << s["type"] << " step " << step;
    }
  }
}

// The schedule of the official ImageNet ResNet. The step at a boundary still has the old rate; the
// next one has the new rate.
TEST(LearningRateTest, PiecewiseChangesAfterTheBoundary) {
  for (const auto& [batch, replicas, boundaries] :
       {std::tuple{32, 1, std::vector<int64_t>{1201094, 2402188, 3202917, 3603282}},
        {128, 1, {300273, 600547, 800729, 900820}},
        {64, 4, {150136, 300273, 400364, 450410}},
        {3, 3, {4270556, 8541113, 11388151, 12811669}}}) {
    const LearningRate rate({.type = "piecewise",
                             .learning_rate = 0.1,
                             .num_samples = 1281167,
                             .batch_size = batch,
                             .replicas_to_aggregate = replicas});
    constexpr float kRates[] = {0.1f, 0.01f, 0.001f, 0.0001f, 0.00001f};
    EXPECT_EQ(rate.At(0), kRates[0]);
    for (size_t i = 0; i < boundaries.size(); ++i) {
      EXPECT_EQ(rate.At(boundaries[i]), kRates[i]);
      EXPECT_EQ(rate.At(boundaries[i] + 1), kRates[i + 1]);
    }
  }
}

TEST(LearningRateTest, CosineDecaysToTheEndRate) {
  const LearningRate rate({.type = "cosine",
                           .learning_rate = 0.5,
                           .end_learning_rate = 0.1,
                           .num_epochs_per_decay = 10,
                           .num_samples = 100,
                           .batch_size = 10});
  EXPECT_EQ(rate.decay_steps(), 100);
  EXPECT_FLOAT_EQ(rate.At(0), 0.5f);
  EXPECT_FLOAT_EQ(rate.At(50), 0.3f);
  EXPECT_FLOAT_EQ(rate.At(25), 0.3f + 0.2f * std::sqrt(0.5f));
  EXPECT_FLOAT_EQ(rate.At(100), 0.1f);
  EXPECT_FLOAT_EQ(rate.At(1000), 0.1f);
}

TEST(LearningRateTest, CosineFitsTheLengthOfTheRun) {
  const LearningRate rate({.type = "cosine",
                           .learning_rate = 0.5,
                           .end_learning_rate = 0,
                           .num_epochs_per_decay = 0,
                           .run_steps = 200});
  EXPECT_EQ(rate.decay_steps(), 200);
  EXPECT_FLOAT_EQ(rate.At(100), 0.25f);
  EXPECT_NEAR(rate.At(200), 0, 1e-7);
}

// int(27 * 2 / 64) is 0, by which TF-Slim would divide.
TEST(LearningRateTest, DecaysInEachStepIfTwoEpochsAreLess) {
  const LearningRate small({.learning_rate = 1, .num_samples = 27, .batch_size = 64});
  EXPECT_TRUE(small.decays_in_each_step());
  EXPECT_EQ(small.decay_steps(), 1);
  EXPECT_FLOAT_EQ(small.At(2), 0.94f * 0.94f);
  EXPECT_FALSE(LearningRate({.num_samples = 64, .batch_size = 64}).decays_in_each_step());
}

// 50000 / (12 * 50) * 2.4 is slightly less than 200. TF-Slim divides twice and gets 200.
TEST(LearningRateTest, RoundsDecayStepsAsTfSlimDoes) {
  const LearningRate rate({.type = "exponential",
                           .num_epochs_per_decay = 2.4,
                           .num_samples = 50000,
                           .batch_size = 12,
                           .replicas_to_aggregate = 50});
  EXPECT_EQ(rate.decay_steps(), 200);
}

// TensorFlow's graph optimizer multiplies by 1/41 in fp32 before it takes the floor. kDecays is how
// often TensorFlow 2.21 has applied the factor 0.94 at the steps 0, 41, 82, ...
TEST(LearningRateTest, DecaysAtTheStepsAtWhichTensorFlowDoes) {
  const LearningRate rate({.type = "exponential",
                           .learning_rate = 1,
                           .decay_factor = 0.94,
                           .num_epochs_per_decay = 1,
                           .num_samples = 41,
                           .batch_size = 1});
  ASSERT_EQ(rate.decay_steps(), 41);
  constexpr int kDecays[] = {0, 0, 1, 3, 3, 5, 6, 6};
  for (int k = 0; k < 8; ++k)
    EXPECT_FLOAT_EQ(rate.At(41 * k), static_cast<float>(std::pow(0.94, kDecays[k]))) << k;
  EXPECT_FLOAT_EQ(rate.At(42), 0.94f);
}

TEST(LearningRateTest, IsScaledToTheGlobalBatchAndWarmsUp) {
  const LearningRate rate({.type = "fixed",
                           .learning_rate = 0.1,
                           .warmup_epochs = 2,
                           .base_batch = 256,
                           .num_samples = 10240,
                           .batch_size = 256,
                           .replicas_to_aggregate = 4,
                           .ranks = 4});
  EXPECT_FLOAT_EQ(static_cast<float>(rate.base()), 0.4f);
  EXPECT_EQ(rate.At(0), 0.0f);
  EXPECT_FLOAT_EQ(rate.At(10), 0.2f);  // warm-up takes 20 steps
  EXPECT_FLOAT_EQ(rate.At(20), 0.4f);
  EXPECT_FLOAT_EQ(rate.At(21), 0.4f);
}

TEST(LearningRateTest, DescribesTheSchedule) {
  const LearningRateOptions common{.learning_rate = 0.5,
                                   .end_learning_rate = 0.25,
                                   .num_epochs_per_decay = 1,
                                   .boundaries = {1},
                                   .factors = {1, 0.5},
                                   .num_samples = 64,
                                   .batch_size = 32};
  const std::pair<const char*, const char*> types[] = {
      {"fixed", "0.5, fixed"},
      {"exponential", "0.5, times 0.94 every 2 steps (decay_steps)"},
      {"polynomial", "0.5, polynomial to 0.25 in 2 steps (decay_steps)"},
      {"cosine", "0.5, cosine to 0.25 in 2 steps (decay_steps)"},
      {"piecewise", "0.5, times 0.5 after step 2"}};
  for (const auto& [type, text] : types) {
    LearningRateOptions options = common;
    options.type = type;
    EXPECT_EQ(LearningRate(options).Describe(options), text);
  }
}

TEST(LearningRateTest, RejectsOptionsThatGiveNegativeRates) {
  const std::pair<const char*, LearningRateOptions> cases[] = {
      {"end_learning_rate", {.type = "fixed", .end_learning_rate = -0.1}},
      {"learning_rate_decay_factor", {.type = "fixed", .decay_factor = -0.5}},
      {"learning_rate_factors", {.type = "fixed", .factors = {1, -1}}},
      {"warmup_epochs", {.type = "fixed", .warmup_epochs = -1}}};
  for (const auto& [flag, options] : cases) {
    EXPECT_THAT([&options = options] { LearningRate rate(options); },
                ThrowsMessage<UsageError>(HasSubstr(Option(flag) + ": out of range")));
  }
}

TEST(LearningRateTest, ErrorsNameTheFlag) {
  EXPECT_THAT([] { LearningRate({.type = "piecewise", .boundaries = {1}, .factors = {1}}); },
              ThrowsMessage<UsageError>(
                  HasSubstr("\x1f$(learning_rate_factors): wrong number of factors")));
  EXPECT_THAT(
      [] {
        LearningRate({.type = "piecewise", .boundaries = {2, 1}, .factors = {1, 1, 1}});
      },
      ThrowsMessage<UsageError>(HasSubstr("not in ascending order")));
  EXPECT_THAT([] { LearningRate({.type = "linear"}); },
              ThrowsMessage<UsageError>(HasSubstr("\x1f$(learning_rate_decay_type)")));
  for (const char* type : {"exponential", "cosine"}) {
    EXPECT_THAT(
        ([=] { LearningRate({.type = type, .num_epochs_per_decay = 0, .num_samples = 10}); }),
        ThrowsMessage<UsageError>(HasSubstr("\x1f$(num_epochs_per_decay): out of range")));
  }
  const LearningRateOptions never_decays{
      .learning_rate = 0.5, .num_epochs_per_decay = 1e30, .num_samples = 10};
  EXPECT_EQ(LearningRate(never_decays).At(1000), 0.5f);
  for (const double rate : {-0.1, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(([=] { LearningRate({.type = "fixed", .learning_rate = rate}); }),
                ThrowsMessage<UsageError>(HasSubstr("\x1f$(learning_rate): out of range")));
  }
  EXPECT_EQ(LearningRate({.type = "fixed", .learning_rate = 0.5}).At(7), 0.5f);
}

}  // namespace
}  // namespace carole::optim
