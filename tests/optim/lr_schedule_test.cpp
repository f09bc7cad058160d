#include "src/optim/lr_schedule.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/core/error.h"

namespace carole::optim {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(LearningRateTest, FollowsTheRecordedSchedulesExactly) {
  const json recorded = json::parse(std::ifstream(CAROLE_TEST_DATA "/optimizers.json"));
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

TEST(LearningRateTest, BadFlagsAreNamed) {
  EXPECT_THAT([] { LearningRate({.type = "cosine"}); },
              ThrowsMessage<UsageError>(HasSubstr("--learning_rate_decay_type")));
  EXPECT_THAT([] { LearningRate({.num_samples = 10, .batch_size = 32}); },
              ThrowsMessage<UsageError>(HasSubstr("--num_epochs_per_decay")));
  EXPECT_EQ(LearningRate({.type = "fixed", .learning_rate = 0.5}).At(7), 0.5f);
}

}  // namespace
}  // namespace carole::optim
