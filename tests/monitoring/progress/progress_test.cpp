#include "src/monitoring/progress/progress.h"

#include <gmock/gmock.h>

namespace carole::monitoring {
namespace {

constexpr ProgressValues kHalf{.step = 500,
                               .max_steps = 1000,
                               .loss = 0.43214,
                               .images_per_second = 1340.4,
                               .seconds_left = 3665};

TEST(Progress, ShowsStepLossSpeedAndTimeLeft) {
  EXPECT_EQ(FormatProgress(kHalf),
            "[##########..........]  50 %  step 500/1000  loss 0.4321  1340 images/s  "
            "1:01:05 left");
  EXPECT_EQ(FormatProgress({.step = 7, .loss = 1, .images_per_second = 10}),
            "step 7  loss 1.0000  10 images/s");
  ProgressValues limited = kHalf;
  limited.stops_early = true;
  EXPECT_THAT(FormatProgress(limited), ::testing::EndsWith("images/s  stops in 1:01:05"));
  ProgressValues evaluating = kHalf;
  evaluating.activity = "evaluating";
  EXPECT_EQ(FormatProgress(evaluating), "[##########..........]  50 %  step 500/1000  evaluating");
}

TEST(Progress, FitsIntoNarrowTerminals) {
  EXPECT_EQ(FormatProgress(kHalf, 79),
            "[#######.......]  50 %  step 500/1000  loss 0.4321  1340 images/s  1:01:05 left");
  EXPECT_EQ(FormatProgress(kHalf, 72),
            " 50 %  step 500/1000  loss 0.4321  1340 images/s  1:01:05 left");
  EXPECT_EQ(FormatProgress(kHalf, 50), " 50 %  step 500/1000  loss 0.4321  1:01:05 left");
  EXPECT_EQ(FormatProgress(kHalf, 45), "step 500/1000  loss 0.4321  1:01:05 left");
  EXPECT_EQ(FormatProgress(kHalf, 20), "step 500/1000  loss ");
  for (int width = 0; width < 120; ++width)
    EXPECT_LE(FormatProgress(kHalf, width).size(), static_cast<size_t>(width));
}

}  // namespace
}  // namespace carole::monitoring
