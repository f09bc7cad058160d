// The random draws have the distributions of TF-Slim and TensorFlow.
#include "io/preprocessing/distortion.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/io/damage.h"

namespace carole::io {
namespace {

// The number of draws for each random quantity.
constexpr int kDraws = 10'000;
// The bound for the Kolmogorov-Smirnov statistic times the square root of the number of draws. A
// uniform quantity exceeds it with probability 1e-6. Draws are keyed, so a test that passes once
// always passes.
constexpr double kMaxDistance = 2.7;

// Draws the quantity kDraws times.
std::vector<double> Draw(const std::function<double(Rng&)>& quantity) {
  std::vector<double> values;
  for (int i = 0; i < kDraws; ++i) {
    Rng rng(7, RngPurpose::kAugment, 0, static_cast<uint64_t>(i));
    values.push_back(quantity(rng));
  }
  return values;
}

void ExpectUniform(std::vector<double> values, double low, double high) {
  std::sort(values.begin(), values.end());
  EXPECT_GE(values.front(), low);
  EXPECT_LE(values.back(), high);
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = (values[i] - low) / (high - low);
    distance = std::max(distance, std::abs(expected - (i + 0.5) / values.size()));
  }
  EXPECT_LT(distance * std::sqrt(values.size()), kMaxDistance);
}

// Expects each integer of [low, high] equally often, with the chi-squared test. The mean of the
// statistic is the number of integers minus 1, and its variance is twice that.
void ExpectUniformIntegers(const std::vector<double>& values, int low, int high) {
  std::vector<int> counts(high - low + 1);
  for (double value : values) ++counts.at(static_cast<int>(value) - low);
  const double expected = static_cast<double>(values.size()) / counts.size();
  double chi2 = 0;
  for (int count : counts) chi2 += (count - expected) * (count - expected) / expected;
  const double degrees_of_freedom = static_cast<double>(counts.size()) - 1;
  EXPECT_LT(std::abs(chi2 - degrees_of_freedom), 5.5 * std::sqrt(2 * degrees_of_freedom))
      << counts.size() << " values";
}

void ExpectCoinFlips(const std::vector<double>& values) { ExpectUniformIntegers(values, 0, 1); }

// For a square image, the scaled height is the shorter side.
TEST(ScaledCropDistribution, ShorterSideIsUniformAndIncludesBothEnds) {
  for (const SideRounding rounding : {SideRounding::kHalfEven, SideRounding::kTruncate}) {
    const auto sides =
        Draw([&](Rng& rng) { return DrawScaledCrop(256, 256, 224, 224, rounding, rng).height; });
    ExpectUniformIntegers(sides, 256, 512);
    EXPECT_EQ(*std::min_element(sides.begin(), sides.end()), 256);
    EXPECT_EQ(*std::max_element(sides.begin(), sides.end()), 512);
  }
}

// 224 / sqrt(0.5) = 316.8. A small output cannot take half of 256 pixels.
TEST(ScaledCropDistribution, MinimumAreaBoundsTheShorterSide) {
  const auto sides = [](int output) {
    return Draw([&](Rng& rng) {
      return DrawScaledCrop(256, 256, output, output, SideRounding::kHalfEven, rng, 0.5).height;
    });
  };
  ExpectUniformIntegers(sides(224), 256, 316);
  EXPECT_THAT(sides(64), ::testing::Each(256));
}

TEST(ScaledCropDistribution, PositionsAreUniform) {
  const auto draw = [](auto&& of) {
    return Draw([&](Rng& rng) {
      return of(DrawScaledCrop(300, 500, 224, 192, SideRounding::kHalfEven, rng));
    });
  };
  // The number of positions differs between draws and can be as low as 33. So a position is
  // converted to a continuous uniform value by adding a random fraction.
  int i = 0;
  const auto to_unit = [&i](int position, int num_positions) {
    Rng rng(8, RngPurpose::kData, 0, static_cast<uint64_t>(i++));
    return (position + rng.NextDouble()) / num_positions;
  };
  ExpectUniform(draw([&](const ScaledCrop& c) { return to_unit(c.top, c.height - 224 + 1); }), 0,
                1);
  ExpectUniform(draw([&](const ScaledCrop& c) { return to_unit(c.left, c.width - 192 + 1); }), 0,
                1);
  ExpectCoinFlips(draw([](const ScaledCrop& c) { return c.mirrored; }));
}

// The expected values were recorded from TF-Slim and from the ImageNet ResNet.
TEST(ScaledCrop, CentralCropRoundsAsItsOrigin) {
  const ScaledCrop slim = CentralScaledCrop(121, 121, 224, 224, SideRounding::kHalfEven);
  EXPECT_EQ(slim.height, 256);
  EXPECT_EQ(slim.top, 16);
  const ScaledCrop truncated = CentralScaledCrop(121, 121, 224, 224, SideRounding::kTruncate);
  EXPECT_EQ(truncated.height, 255);
  EXPECT_EQ(truncated.top, 15);
}

TEST(ScaledCrop, RefusesImagesThatAreTooNarrow) {
  constexpr int kLong = 1 << 26;  // the largest number of pixels of an image
  for (const auto& size : {std::pair{1, kLong}, {kLong, 1}}) {
    const int height = size.first;  // clang 14 cannot capture structured bindings
    const int width = size.second;
    for (const SideRounding rounding : {SideRounding::kHalfEven, SideRounding::kTruncate}) {
      Rng rng(7, RngPurpose::kAugment, 0, 0);
      const std::string text =
          TextOf<DataError>([&] { DrawScaledCrop(height, width, 224, 224, rounding, rng); });
      EXPECT_THAT(text, ::testing::HasSubstr(fmt::format("too narrow: got {}x{}", height, width)));
      EXPECT_EQ(TextOf<DataError>([&] { CentralScaledCrop(height, width, 224, 224, rounding); }),
                fmt::format("[io.preprocessing] image too narrow: got {}x{}, want a longer side of "
                            "at most 4194304 times the shorter side",
                            height, width));
    }
  }
  EXPECT_EQ(ScaleShorterSide(1, 1 << 22, 256, SideRounding::kHalfEven).width, 1 << 30);
}

// Mean, deviation and quantiles of a sample.
struct Statistics {
  explicit Statistics(std::vector<double> values) : sorted(std::move(values)) {
    std::sort(sorted.begin(), sorted.end());
    for (double v : sorted) mean += v / static_cast<double>(sorted.size());
    for (double v : sorted) deviation += (v - mean) * (v - mean);
    deviation = std::sqrt(deviation / static_cast<double>(sorted.size()));
  }
  double at(double quantile) const {
    return sorted[static_cast<size_t>(quantile * (static_cast<double>(sorted.size()) - 1))];
  }
  std::vector<double> sorted;
  double mean = 0;
  double deviation = 0;
};

struct RecordedBoxes {
  int height, width;
  double area, area_deviation, area_quartiles[3], aspect, box_height, box_width, top, left;
};

// Statistics of 20000 draws of TensorFlow's sample_distorted_bounding_box, with the whole image as
// the box.
constexpr RecordedBoxes kRecorded[] = {
    {375, 500, 0.389, 0.208, {0.208, 0.355, 0.541}, 1.043, 255.9, 265.8, 59.0, 116.6},
    {600, 200, 0.204, 0.073, {0.143, 0.194, 0.254}, 1.031, 154.1, 155.4, 222.6, 21.8}};

TEST(CropRegionDistribution, HasTensorFlowsStatistics) {
  for (const RecordedBoxes& want : kRecorded) {
    const auto statistics = [&](auto&& of) {
      return Statistics(
          Draw([&](Rng& rng) { return of(DrawCropRegion(want.height, want.width, {}, rng)); }));
    };
    // Four standard deviations of the difference of two means.
    const double error = 4 * std::sqrt(1.0 / kDraws + 1.0 / 20'000);
    const double pixels = double{1} * want.height * want.width;
    const Statistics area =
        statistics([&](const Region& w) { return w.height * w.width / pixels; });
    EXPECT_NEAR(area.mean, want.area, error * area.deviation);
    EXPECT_NEAR(area.deviation, want.area_deviation, 0.01);
    EXPECT_GE(area.at(0), 0.0999);
    for (int q = 0; q < 3; ++q) EXPECT_NEAR(area.at(0.25 * (q + 1)), want.area_quartiles[q], 0.012);
    const Statistics aspect =
        statistics([](const Region& w) { return static_cast<double>(w.width) / w.height; });
    EXPECT_NEAR(aspect.mean, want.aspect, error * aspect.deviation + 0.0005);
    const std::pair<Statistics, double> means[] = {
        {statistics([](const Region& w) { return w.height; }), want.box_height},
        {statistics([](const Region& w) { return w.width; }), want.box_width},
        {statistics([](const Region& w) { return w.top; }), want.top},
        {statistics([](const Region& w) { return w.left; }), want.left}};
    for (const auto& [got, mean] : means) EXPECT_NEAR(got.mean, mean, error * got.deviation + 0.05);
  }
}

TEST(CropRegion, ShowsEnoughOfAGivenBox) {
  const Box boxes[] = {{0.0f, 0.0f, 0.001f, 0.001f},  // smaller than a pixel, so ignored
                       {0.6f, 0.7f, 0.9f, 0.9f}};
  for (int i = 0; i < kDraws; ++i) {
    Rng rng(2, RngPurpose::kAugment, 0, static_cast<uint64_t>(i));
    const Region w = DrawCropRegion(300, 400, boxes, rng);
    ASSERT_TRUE(w.top >= 0 && w.left >= 0 && w.top + w.height <= 300 && w.left + w.width <= 400);
    const int rows = std::min(w.top + w.height, 270) - std::max(w.top, 180);
    const int columns = std::min(w.left + w.width, 360) - std::max(w.left, 280);
    ASSERT_TRUE(rows > 0 && columns > 0);
    ASSERT_GE(rows * columns, 0.0999 * 90 * 80);
  }
}

TEST(CropRegion, HasAtLeastTheGivenArea) {
  double smallest = 1;
  for (int i = 0; i < kDraws; ++i) {
    Rng rng(2, RngPurpose::kAugment, 0, static_cast<uint64_t>(i));
    const Region crop = DrawCropRegion(60, 80, {}, rng, 0.5);
    smallest = std::min(smallest, crop.height * crop.width / 4800.0);
  }
  EXPECT_GE(smallest, 0.5);
  EXPECT_LT(smallest, 0.52);
}

TEST(CropRegion, IsTheWholeImageIfNoCropFits) {
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 1000}, {1000, 1}}) {
    Rng rng(2, RngPurpose::kAugment);
    EXPECT_EQ(DrawCropRegion(height, width, {}, rng), (Region{0, 0, height, width}));
  }
}

TEST(InceptionDistribution, EachQuantityIsUniform) {
  const auto draws = [](bool fast, auto&& of) {
    return Draw([&](Rng& rng) {
      return static_cast<double>(of(DrawInceptionDistortion(100, 120, {}, fast, rng)));
    });
  };
  for (const bool fast : {true, false}) {
    ExpectCoinFlips(draws(fast, [](const auto& d) { return d.mirrored; }));
    ExpectUniform(draws(fast, [](const auto& d) { return d.color.brightness; }), -32 / 255.0,
                  32 / 255.0);
    ExpectUniform(draws(fast, [](const auto& d) { return d.color.saturation; }), 0.5, 1.5);
  }
  ExpectUniform(draws(false, [](const auto& d) { return d.color.hue; }), -0.2, 0.2);
  ExpectUniform(draws(false, [](const auto& d) { return d.color.contrast; }), 0.5, 1.5);
  ExpectUniformIntegers(draws(false, [](const auto& d) { return d.color.order; }), 0, 3);
  ExpectUniformIntegers(draws(false, [](const auto& d) { return d.resize_method; }), 0, 3);
  for (double method : draws(true, [](const auto& d) { return d.resize_method + d.color.order; }))
    EXPECT_EQ(method, 0);
}

TEST(CifarnetDistribution, EachQuantityIsUniform) {
  const auto draws = [](auto&& of) {
    return Draw([&](Rng& rng) {
      return static_cast<double>(of(DrawCifarnetDistortion(32, 40, 32, 32, rng)));
    });
  };
  ExpectUniformIntegers(draws([](const auto& d) { return d.top; }), -4, 4);
  ExpectUniformIntegers(draws([](const auto& d) { return d.left; }), -4, 12);
  ExpectCoinFlips(draws([](const auto& d) { return d.mirrored; }));
  ExpectUniform(draws([](const auto& d) { return d.brightness; }), -63, 63);
  ExpectUniform(draws([](const auto& d) { return d.contrast; }), 0.2, 1.8);
}

}  // namespace
}  // namespace carole::io
