// Compares the decoder of io/image/jpeg with libjpeg: the same pixels, the same errors.
#include <cstring>

#include "io/image/jpeg.h"
#include "src/core/error.h"
#include "tests/io/damage.h"
#include "tests/io/image/jpeg_encoding.h"

namespace carole::io {
namespace {

struct Outcome {
  std::vector<uint8_t> pixels;
  std::string error;
  bool used_libjpeg = true;
};

// The region is clipped to the image, because damage may change the image's size.
Outcome DecodeRegion(const std::string& bytes, Region region, const JpegOptions& options) {
  static JpegDecoder decoder;
  Outcome outcome;
  Image image;
  try {
    decoder.Open(bytes, options);
    region.top = std::min(region.top, decoder.height() - 1);
    region.left = std::min(region.left, decoder.width() - 1);
    region.height = std::min(region.height, decoder.height() - region.top);
    region.width = std::min(region.width, decoder.width() - region.left);
    decoder.Decode(region, &image);
    outcome.pixels = image.pixels;
    outcome.used_libjpeg = decoder.used_libjpeg();
  } catch (const DataError& error) {
    outcome.error = error.what();
  }
  return outcome;
}

// Compares both decoders. Returns whether io/image/jpeg decoded the region.
bool ExpectLibjpegsPixels(const std::string& bytes, const Region& region, int channels) {
  const Outcome own = DecodeRegion(bytes, region, {.channels = channels});
  const Outcome wanted = DecodeRegion(bytes, region, {.channels = channels, .only_libjpeg = true});
  EXPECT_EQ(own.error, wanted.error);
  EXPECT_TRUE(own.pixels == wanted.pixels)
      << region.height << "x" << region.width << " at " << region.top << "," << region.left
      << " in " << channels << " channels";
  return !own.used_libjpeg;
}

void ExpectOwnDecoderEqualsLibjpeg(int height, int width, const Encoding& encoding, int rounds) {
  const std::string bytes = Encode(height, width, encoding);
  Rng rng(height * 1000 + width, RngPurpose::kData);
  const auto draw = [&](int size) { return static_cast<int>(rng.NextBelow(size)); };
  for (const int channels : {1, 3}) {
    EXPECT_TRUE(ExpectLibjpegsPixels(bytes, {.height = height, .width = width}, channels));
    for (int round = 0; round < rounds; ++round) {
      Region region{.height = 1 + draw(height), .width = 1 + draw(width)};
      region.top = draw(height - region.height + 1);
      region.left = draw(width - region.width + 1);
      EXPECT_TRUE(ExpectLibjpegsPixels(bytes, region, channels));
      if (testing::Test::HasFailure()) return;
    }
  }
}

constexpr std::pair<int, int> kSamplings[] = {{1, 1}, {2, 1}, {2, 2}};
constexpr Encoding kGray{.in = JCS_GRAYSCALE, .file = JCS_GRAYSCALE, .components = 1};

TEST(JpegBaseline, EqualsLibjpegForAllSizesAndRegions) {
  for (const auto& [horizontal, vertical] : kSamplings) {
    for (const auto& [height, width] :
         {std::pair{75, 133}, {64, 96}, {1, 5}, {17, 7}, {8, 200}, {33, 16}, {16, 33}, {130, 50}}) {
      SCOPED_TRACE(fmt::format("{}x{} of {}x{}", horizontal, vertical, height, width));
      ExpectOwnDecoderEqualsLibjpeg(height, width, {.horizontal = horizontal, .vertical = vertical},
                                    25);
    }
  }
  ExpectOwnDecoderEqualsLibjpeg(45, 67, kGray, 25);
}

TEST(JpegBaseline, EqualsLibjpegAtEveryAlignmentOfASmallRegion) {
  for (const auto& [horizontal, vertical] : kSamplings) {
    const std::string bytes =
        Encode(50, 52, {.horizontal = horizontal, .vertical = vertical, .quality = 95});
    for (int at = 0; at < 48 * 48; ++at) {
      const Region region{.top = at / 48, .left = at % 48, .height = 2, .width = 3 + at % 2};
      ASSERT_TRUE(ExpectLibjpegsPixels(bytes, region, 3));
    }
  }
}

TEST(JpegBaseline, EqualsLibjpegAtAllQualities) {
  for (int quality = 1; quality <= 100; ++quality) {
    SCOPED_TRACE(quality);
    const auto [horizontal, vertical] = kSamplings[quality % 3];
    ExpectOwnDecoderEqualsLibjpeg(40, 56,
                                  {.horizontal = horizontal,
                                   .vertical = vertical,
                                   .quality = quality,
                                   .optimized = quality % 2 == 0},
                                  4);
  }
}

TEST(JpegBaseline, EqualsLibjpegAcrossRestarts) {
  for (const auto& [horizontal, vertical] : kSamplings) {
    for (const int units : {1, 2, 7, 13}) {
      SCOPED_TRACE(fmt::format("{}x{}, {}", horizontal, vertical, units));
      ExpectOwnDecoderEqualsLibjpeg(
          90, 110, {.horizontal = horizontal, .vertical = vertical, .restart_units = units}, 15);
    }
    ExpectOwnDecoderEqualsLibjpeg(
        90, 110, {.horizontal = horizontal, .vertical = vertical, .restart_rows = 1}, 15);
  }
}

TEST(JpegBaseline, LeavesOtherKindsToLibjpeg) {
  const Region all{.height = 20, .width = 20};
  for (const Encoding& encoding :
       {Encoding{.progressive = true}, Encoding{.horizontal = 1, .vertical = 2},
        Encoding{.horizontal = 4, .vertical = 1},
        Encoding{.file = JCS_RGB, .horizontal = 1, .vertical = 1},
        Encoding{.in = JCS_CMYK, .file = JCS_YCCK, .components = 4}})
    EXPECT_FALSE(ExpectLibjpegsPixels(Encode(20, 20, encoding), all, 3));
  EXPECT_FALSE(ExpectLibjpegsPixels(Encode(20, 4, {}), all, 3));  // chroma of two columns
  EXPECT_TRUE(DecodeRegion(Encode(20, 20, {}), all, {.dct_method = DctMethod::kIntegerAccurate})
                  .used_libjpeg);
}

// libjpeg decides whether a damaged image gives pixels or an error. Both decoders must agree.
TEST(JpegBaseline, EqualsLibjpegForDamagedImages) {
  Rng rng(11, RngPurpose::kData);
  int own = 0;
  for (int round = 0; round < 6000; ++round) {
    const auto [horizontal, vertical] = kSamplings[round % 3];
    const std::string whole = Encode(40, 48,
                                     {.horizontal = horizontal,
                                      .vertical = vertical,
                                      .quality = 50 + round % 50,
                                      .optimized = round % 2 == 0,
                                      .restart_units = round % 4});
    DamagedBytes file{whole};
    const size_t scan = whole.find("\xff\xda");
    const bool anywhere = round % 5 == 0;
    const size_t first = anywhere ? 0 : scan;
    for (int i = 0; i < 1 + round % 3; ++i) {
      file.SetByte(first + rng.NextBelow(whole.size() - first), static_cast<char>(rng.Next()));
    }
    // A small region, because damage may make the image enormous, which is slow but safe.
    const Region region{
        .top = round % 20, .left = round % 23, .height = 1 + round % 24, .width = 1 + round % 29};
    own += ExpectLibjpegsPixels(file.bytes, region, round % 2 == 0 ? 3 : 1) ? 1 : 0;
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(own, 100);  // after much of the damage the stream is still valid
}

}  // namespace
}  // namespace carole::io
