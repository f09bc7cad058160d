// Tests JPEGs that are decoded at 1/2, 1/4 and 1/8 of their size: the values of their pixels, and
// that crops show the same part of the image as crops at full size.
#include <cmath>

#include "io/image/lazy_image.h"
#include "io/preprocessing/preprocessing.h"
#include "src/core/rng.h"
#include "tests/io/damage.h"
#include "tests/io/image/jpeg_encoding.h"

namespace carole::io {
namespace {

int DivideUp(int a, int b) { return (a + b - 1) / b; }

Image DecodeAt(const std::string& bytes, const JpegOptions& options, int divisor,
               bool* used_libjpeg = nullptr) {
  JpegDecoder decoder;
  decoder.Open(bytes, options);
  Image image;
  decoder.Decode(
      {.height = DivideUp(decoder.height(), divisor), .width = DivideUp(decoder.width(), divisor)},
      &image, divisor);
  if (used_libjpeg != nullptr) *used_libjpeg = decoder.used_libjpeg();
  return image;
}

// Returns the mean of the box of pixels that a value of the smaller image replaces.
double MeanOfBox(const Image& whole, int divisor, int y, int x, int channel) {
  double sum = 0;
  for (int dy = 0; dy < divisor; ++dy) {
    for (int dx = 0; dx < divisor; ++dx) {
      const int at = (y * divisor + dy) * whole.width + x * divisor + dx;
      sum += whole.pixels[at * whole.channels + channel];
    }
  }
  return sum / (divisor * divisor);
}

// Returns the largest error over all boxes that lie completely within the full-size image.
double LargestError(const Image& whole, const Image& image, int divisor) {
  double largest = 0;
  for (int y = 0; y < whole.height / divisor; ++y) {
    for (int i = 0; i < whole.width / divisor * whole.channels; ++i) {
      const int x = i / whole.channels, c = i % whole.channels;
      const int value = image.pixels[(y * image.width + x) * image.channels + c];
      largest = std::max(largest, std::abs(value - MeanOfBox(whole, divisor, y, x, c)));
    }
  }
  return largest;
}

TEST(JpegScaling, GrayIsTheMeanOfBoxes) {
  const std::string bytes =
      Encode(61, 83, {.in = JCS_GRAYSCALE, .file = JCS_GRAYSCALE, .components = 1});
  const Image whole = DecodeAt(bytes, {.channels = 1}, 1);
  for (const int divisor : {2, 4, 8}) {
    bool used_libjpeg = true;
    const Image image = DecodeAt(bytes, {.channels = 1}, divisor, &used_libjpeg);
    EXPECT_FALSE(used_libjpeg);
    EXPECT_EQ(image.height, DivideUp(61, divisor));
    EXPECT_EQ(image.width, DivideUp(83, divisor));
    EXPECT_LE(LargestError(whole, image, divisor), 0.5);
  }
}

// Upsampling and inverse DCT differ, so smooth images are compared. libjpeg widens chroma that is
// halved in one direction only, which gives larger errors.
TEST(JpegScaling, ColorIsNearlyTheMeanOfBoxes) {
  constexpr double kLevels = 5, kWidenedLevels = 14;
  for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}}) {
    for (const bool progressive : {false, true}) {
      const std::string bytes = Encode(150, 203,
                                       {.horizontal = horizontal,
                                        .vertical = vertical,
                                        .quality = 97,
                                        .progressive = progressive,
                                        .period = 300});
      const Image whole = DecodeAt(bytes, {}, 1);
      for (const int divisor : {2, 4, 8}) {
        SCOPED_TRACE(fmt::format("{}x{} {} at 1/{}", horizontal, vertical, progressive, divisor));
        for (const bool only_libjpeg : {false, true}) {
          bool used_libjpeg = false;
          const Image image =
              DecodeAt(bytes, {.only_libjpeg = only_libjpeg}, divisor, &used_libjpeg);
          EXPECT_EQ(used_libjpeg, only_libjpeg || progressive || vertical > horizontal);
          EXPECT_LE(LargestError(whole, image, divisor),
                    used_libjpeg && horizontal != vertical ? kWidenedLevels : kLevels);
        }
      }
    }
  }
}

TEST(JpegScaling, NeverDecodesBelowTheWantedSize) {
  const std::string bytes = Encode(64, 64, {});
  LazyImage image;
  image.Open(bytes, {.scaling = true});
  for (const auto& [smaller, divisor] :
       {std::pair{0.5f, 1}, {1.99f, 1}, {2.0f, 2}, {3.9f, 2}, {4.0f, 4}, {8.0f, 8}, {100.0f, 8}})
    EXPECT_EQ(image.DivisorFor(smaller), divisor) << smaller;
  image.Open(bytes, {});
  EXPECT_EQ(image.DivisorFor(8), 1);  // scaling is not allowed
  image.Open(EncodePng(Image{.pixels = {0, 0, 0}, .height = 1, .width = 1, .channels = 3}.view()),
             {.scaling = true});
  EXPECT_EQ(image.DivisorFor(8), 1);  // not a JPEG
}

// The same random crops at full size and at the sufficient smaller size. The waves are steep enough
// to reveal a shift of the smaller image by the offset between the centers of its pixels.
TEST(JpegScaling, CropsShowTheSamePartAsAtFullSize) {
  constexpr double kPeriod = 200, kLevels = 7;
  constexpr int kSize = 96;
  const std::string bytes = Encode(1003, 1490, {.quality = 97, .period = kPeriod});
  for (const char* name : {"vgg", "inception"}) {
    const PreprocessingEntry& entry = FindPreprocessing(name);
    const float level = entry.normalization->multiply;
    int scaled = 0;
    for (uint64_t record = 0; record < 12; ++record) {
      std::vector<float> values[2];
      for (const bool scaling : {false, true}) {
        LazyImage image;
        image.Open(bytes, {.scaling = scaling});
        Rng rng(1, RngPurpose::kAugment, 0, record);
        std::vector<float>& out = values[scaling ? 1 : 0];
        out.resize(kSize * kSize * 3);
        (record % 4 == 3 ? entry.eval : entry.train)(
            {.image = image, .height = kSize, .width = kSize, .out = out, .rng = &rng});
      }
      double largest = 0;
      for (size_t i = 0; i < values[0].size(); ++i)
        largest = std::max(largest, std::abs(double{values[0][i]} - values[1][i]));
      EXPECT_LT(largest, kLevels * level) << name << " " << record;
      scaled += values[0] != values[1] ? 1 : 0;
    }
    EXPECT_GE(scaled, 8) << name;
  }
}

}  // namespace
}  // namespace carole::io
