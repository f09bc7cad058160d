#include "io/image/resize.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/image/color.h"
#include "src/core/rng.h"
#include "tests/io/damage.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

// Compares with results that were recorded from single TensorFlow operations on wide_422.jpg, with
// values in [0, 1].
class RecordedOps : public testing::Test {
 protected:
  RecordedOps() : golden_(nlohmann::json::parse(ReadText(TestData() + "/io_preprocessing.json"))) {
    DecodeJpeg(ReadText(TestData() + "/io_images/wide_422.jpg"), 3, &image_);
  }

  FloatImage Input() const { return ToFloats(image_.view(), 1.0f / 255.0f); }
  FloatImage Crop(const Region& region) const {
    LazyImage lazy_image(image_.view());
    return ToFloats(lazy_image.Decode(region), 1.0f / 255.0f);
  }

  // Compares `values` with the recorded operation whose name begins with `name`.
  void Expect(const std::string& name, std::span<const float> values, double tolerance) const {
    SCOPED_TRACE(name);
    for (const auto& op : golden_["ops"]) {
      if (!std::string(op["op"]).starts_with(name)) continue;
      double sum = 0;
      for (float v : values) sum += v;
      EXPECT_NEAR(sum / static_cast<double>(values.size()), double{op["mean"]}, tolerance);
      for (const auto& sample : op["samples"])
        EXPECT_NEAR(values[sample[0]], float{sample[1]}, tolerance) << sample;
      return;
    }
    ADD_FAILURE() << "no recorded operation of this name";
  }

  nlohmann::json golden_;
  Image image_;
};

constexpr double kRoundingTolerance = 1e-6;  // a few rounding errors of values near 1
constexpr double kFloatMeanTolerance =
    5e-5;  // TensorFlow sums 126000 floats for the mean of a channel

TEST_F(RecordedOps, ColorOperationsEqualTensorFlow) {
  const auto changed = [&](auto&& change) {
    FloatImage image = Input();
    change(image);
    return image.values;
  };
  const auto brightness = [](float d) { return [d](FloatImage& i) { AdjustBrightness(i, d); }; };
  const auto saturation = [](float f) { return [f](FloatImage& i) { AdjustSaturation(i, f); }; };
  const auto hue = [](float d) { return [d](FloatImage& i) { AdjustHue(i, d); }; };
  const auto contrast = [](float f) { return [f](FloatImage& i) { AdjustContrast(i, f); }; };
  Expect("adjust_brightness +0.1", changed(brightness(0.1f)), kRoundingTolerance);
  Expect("adjust_brightness -0.125", changed(brightness(-0.125f)), kRoundingTolerance);
  Expect("adjust_saturation 0.5", changed(saturation(0.5f)), kRoundingTolerance);
  Expect("adjust_saturation 1.5", changed(saturation(1.5f)), kRoundingTolerance);
  Expect("adjust_hue +0.2", changed(hue(0.2f)), kRoundingTolerance);
  Expect("adjust_hue -0.13", changed(hue(-0.13f)), kRoundingTolerance);
  Expect("adjust_contrast 0.5", changed(contrast(0.5f)), kFloatMeanTolerance);
  Expect("adjust_contrast 1.5", changed(contrast(1.5f)), kFloatMeanTolerance);
}

constexpr Region kRegion{.top = 37, .left = 51, .height = 200, .width = 260};

TEST_F(RecordedOps, ResizeMethodsEqualTensorFlow) {
  const auto resized = [&](ResizeMethod method) {
    return Resize(Crop(kRegion), 224, 224, method).values;
  };
  Expect("crop y=37 x=51 h=200 w=260 then bilinear", resized(ResizeMethod::kBilinear),
         kRoundingTolerance);
  Expect("the same, method 1 nearest", resized(ResizeMethod::kNearest), 1e-7);
  Expect("the same, method 2 bicubic", resized(ResizeMethod::kBicubic), kRoundingTolerance);
  Expect("the same, method 3 area", resized(ResizeMethod::kArea), 2e-6);
}

ResizeTask Task(const Region& region, const PixelMap& map, bool mirrored = false) {
  return {.source = region,
          .rows = {.in = region.height, .out = 224, .count = 224},
          .columns = {.in = region.width, .out = 224, .count = 224, .mirrored = mirrored},
          .map = map};
}

TEST_F(RecordedOps, FusedPassEqualsTensorFlow) {
  const std::string bytes = ReadText(TestData() + "/io_images/wide_422.jpg");
  std::vector<float> out(224 * 224 * 3);
  const auto run = [&](const ResizeTask& task) {
    LazyImage lazy_image;
    lazy_image.Open(bytes, {});
    ResizeBilinear(task, lazy_image, out);
    return std::span<const float>(out);
  };
  const PixelMap plain{.unit = 1.0f / 255.0f};
  Expect("crop y=37 x=51 h=200 w=260 then bilinear", run(Task(kRegion, plain)), 2e-7);
  Expect("crop y=0 x=0 h=90 w=120 then bilinear", run(Task({0, 0, 90, 120}, plain)), 2e-7);
}

// Tests the color operations of the fused pass, without resizing.
TEST_F(RecordedOps, FusedColorsEqualTensorFlow) {
  LazyImage lazy_image(image_.view());
  std::vector<float> out(image_.pixels.size());
  const int height = image_.height;
  const int width = image_.width;
  ResizeBilinear({.source = {.height = height, .width = width},
                  .rows = {.in = height, .out = height, .count = height},
                  .columns = {.in = width, .out = width, .count = width},
                  .map = {.unit = 1.0f / 255.0f,
                          .distort = true,
                          .brightness = 0.1f,
                          .saturation = 1.4f,
                          .subtract = {0.5f, 0.5f, 0.5f},
                          .multiply = 2}},
                 lazy_image, out);
  Expect("fast mode order 0", out, 2 * kRoundingTolerance);
}

TEST_F(RecordedOps, MirroredEqualsFlipLeftRight) {
  LazyImage lazy_image(image_.view());
  std::vector<float> out(image_.pixels.size());
  const int height = image_.height;
  const int width = image_.width;
  ResizeBilinear({.source = {.height = height, .width = width},
                  .rows = {.in = height, .out = height, .count = height},
                  .columns = {.in = width, .out = width, .count = width, .mirrored = true},
                  .map = {.unit = 1.0f / 255.0f}},
                 lazy_image, out);
  Expect("flip_left_right", out, 1e-7);
}

TEST(Resize, FusedPassEqualsWeightedSumsForAllShapes) {
  Rng rng(3, RngPurpose::kData);
  for (int round = 0; round < 60; ++round) {
    const auto side = [&] { return static_cast<int>(1 + rng.NextBelow(40)); };
    const int channels = round % 2 == 0 ? 3 : 1;
    Image image;
    AllocateImage("test", side(), side(), channels, &image);
    for (uint8_t& p : image.pixels) p = static_cast<uint8_t>(rng.Next());
    const int height = side();
    const int width = side();
    LazyImage lazy_image(image.view());
    std::vector<float> out(static_cast<size_t>(height) * width * channels, NAN);
    ResizeBilinear({.source = {.height = image.height, .width = image.width},
                    .rows = {.in = image.height, .out = height, .count = height},
                    .columns = {.in = image.width, .out = width, .count = width}},
                   lazy_image, out);
    const auto want = Resize(ToFloats(image.view(), 1), height, width, ResizeMethod::kBilinear);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], want.values[i], 1e-4) << round;
  }
}

TEST(Color, HandlesBlackWhitePureAndNegativeColors) {
  FloatImage image{.height = 1, .width = 4};
  image.values = {0, 0, 0, 1, 1, 1, 1, 0, 0, -0.2f, -0.1f, -0.3f};
  FloatImage turned = image;
  AdjustHue(turned, 1.0f / 3);  // red becomes green
  const std::vector<float> want = {0, 0, 0, 1, 1, 1, 0, 1, 0, -0.3f, -0.2f, -0.1f};
  for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(turned.values[i], want[i], 1e-6) << i;
  AdjustSaturation(image,
                   1.5f);  // black, white and pure colors stay; negative channels become equal
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(image.values[i], i == 6 || (i > 2 && i < 6) ? 1 : 0);
  for (size_t i = 9; i < 12; ++i) EXPECT_NEAR(image.values[i], -0.1f, 1e-7);
}

}  // namespace
}  // namespace carole::io
