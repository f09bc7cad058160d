#include "src/core/settings.h"

#include <gmock/gmock.h>

#include <cmath>

#include "src/core/error.h"

namespace carole {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Settings, ValuesInRangePass) {
  bool on = false;
  int64_t count = 3;
  double fraction = 0, rate = 1e-9;
  std::string mode = "b";
  CheckSettings("t", {{"on", "", &on},
                      {"count", "", &count, Between(1, 3)},
                      {"fraction", "", &fraction, kFraction},
                      {"rate", "", &rate, MoreThan(0)},
                      {"mode", "", &mode, {}, {"a", "b"}}});
}

TEST(Settings, ErrorsNameTheSettingAndWhatIsWanted) {
  const auto expect = [](double value, const Range& range, const std::string& text) {
    double number = value;
    EXPECT_THAT(
        [&] {
          CheckSettings("t", {{"x", "", &number, range}});
        },
        ThrowsMessage<UsageError>(HasSubstr("[t] \x1f$(x): out of range: got " + text)));
  };
  expect(1, kFraction, "1, want 0 <= value < 1");
  expect(NAN, kFraction, "nan, want 0 <= value < 1");
  expect(0, MoreThan(0), "0, want more than 0");
  expect(-1, AtLeast(0), "-1, want 0 or more");
  expect(0.5, AtMost(0), "0.5, want 0 or less");
  expect(1.5, Between(0, 1), "1.5, want 0 to 1");
  std::string mode = "c";
  EXPECT_THAT(
      [&] {
        CheckSettings("t", {{"mode", "", &mode, {}, {"a", "b"}}});
      },
      ThrowsMessage<UsageError>(
          HasSubstr("[t] \x1f$(mode): unknown value: got c, want one of a, b")));
}

TEST(Settings, DescriptionHasWhatIsNotZero) {
  bool on = true, off = false;
  double rate = 0.25, zero = 0;
  std::string mode = "a", none;
  EXPECT_EQ(DescribeSettings({{"on", "", &on},
                              {"off", "", &off},
                              {"rate", "", &rate},
                              {"zero", "", &zero},
                              {"mode", "", &mode},
                              {"none", "", &none}}),
            "on 1, rate 0.25, mode a");
}

}  // namespace
}  // namespace carole
