#include "io/image/jpeg.h"

#include <cstring>

#include "io/image/lazy_image.h"
#include "src/core/rng.h"
#include "tests/io/damage.h"
#include "tests/io/image/jpeg_encoding.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

void ExpectRegionsEqualTheWhole(const std::string& bytes, int channels, int rounds,
                                int divisor = 1) {
  Image whole;
  JpegDecoder decoder;
  decoder.Open(bytes, {.channels = channels});
  decoder.Decode({.height = (decoder.height() + divisor - 1) / divisor,
                  .width = (decoder.width() + divisor - 1) / divisor},
                 &whole, divisor);
  Rng rng(1, RngPurpose::kData);
  const auto draw = [&](int size) { return static_cast<int>(rng.NextBelow(size)); };
  LazyImage image;
  for (int round = 0; round < rounds; ++round) {
    Region region{.height = 1 + draw(whole.height), .width = 1 + draw(whole.width)};
    region.top = draw(whole.height - region.height + 1);
    region.left = draw(whole.width - region.width + 1);
    image.Open(bytes, {.channels = channels});
    const ImageView part = image.Decode(region, divisor);
    const size_t row_bytes = static_cast<size_t>(region.width) * channels;
    for (int y = 0; y < region.height; ++y) {
      const size_t from =
          (static_cast<size_t>(region.top + y) * whole.width + region.left) * channels;
      ASSERT_EQ(std::memcmp(part.pixels + y * row_bytes, whole.pixels.data() + from, row_bytes), 0)
          << "row " << y << " of " << region.height << "x" << region.width << " at " << region.top
          << "," << region.left;
    }
  }
}

TEST(JpegRegion, EqualsThatPartOfTheWholeImage) {
  for (const char* name : {"landscape_420", "portrait_444", "wide_422", "tall_progressive",
                           "square_gray", "tiny_odd", "restart_420", "cmyk"}) {
    SCOPED_TRACE(name);
    ExpectRegionsEqualTheWhole(ReadText(TestData() + "/io_images/" + std::string(name) + ".jpg"), 3,
                               40);
  }
}

TEST(JpegRegion, EqualsTheWholeForEverySubsampling) {
  for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}}) {
    for (const bool progressive : {false, true}) {
      SCOPED_TRACE(fmt::format("{}x{} {}", horizontal, vertical, progressive));
      const Encoding encoding{
          .horizontal = horizontal, .vertical = vertical, .progressive = progressive};
      for (const int divisor : {1, 2, 4, 8}) {
        ExpectRegionsEqualTheWhole(Encode(75, 133, encoding), 3, 40, divisor);
        ExpectRegionsEqualTheWhole(Encode(33, 16, encoding), 1, 20, divisor);
      }
    }
  }
}

// libjpeg estimates coefficients that the scans left incomplete from neighboring blocks.
TEST(JpegRegion, EqualsTheWholeIfScansAreMissing) {
  const std::string bytes = Encode(75, 133, {.progressive = true});
  const std::string begin_of_scan = "\xff\xda";
  size_t end = 0;
  for (int scans = 1; scans < 4; ++scans) {
    end = bytes.find(begin_of_scan, bytes.find(begin_of_scan, end) + 1);
    ASSERT_NE(end, std::string::npos);
    ExpectRegionsEqualTheWhole(bytes.substr(0, end) + "\xff\xd9", 3, 40);
  }
}

TEST(JpegRegion, AccurateDctDiffersByUpTo5Levels) {
  const std::string bytes = ReadText(TestData() + "/io_images/landscape_420.jpg");
  Image fast, accurate;
  DecodeJpeg(bytes, 3, &fast);
  DecodeJpeg(bytes, 3, &accurate, DctMethod::kIntegerAccurate);
  int largest = 0;
  for (size_t i = 0; i < fast.pixels.size(); ++i)
    largest = std::max(largest, std::abs(fast.pixels[i] - accurate.pixels[i]));
  EXPECT_EQ(largest, 5);  // recorded from TensorFlow's two methods
}

std::string ErrorOf(const std::string& bytes, int channels = 3) {
  Image image;
  return TextOf<DataError>([&] { DecodeImage(bytes, channels, &image); });
}

// Returns the offset of the marker 0xff `code`.
size_t FindMarker(const std::string& bytes, int code) {
  const size_t at = bytes.find(std::string{'\xff', static_cast<char>(code)});
  EXPECT_NE(at, std::string::npos);
  return at;
}

TEST(BadJpeg, DetectsTruncationBelowTheRegionToo) {
  const std::string bytes = Encode(64, 64, {});
  JpegDecoder decoder;
  EXPECT_EQ(TextOf<DataError>(
                [&] { decoder.Open(std::string_view(bytes).substr(0, bytes.size() - 100), {}); }),
            fmt::format("[io.image] jpeg: truncated: got {} bytes without an end marker",
                        bytes.size() - 100));
  Image image;
  decoder.Open(bytes, {});  // the decoder is usable after an error
  decoder.Decode({.height = 8, .width = 8}, &image);
  EXPECT_EQ(image.pixels.size(), 8u * 8 * 3);
  decoder.Open(bytes + "appended by a camera", {});
}

// Returns the file without its segments of this marker.
std::string Without(std::string bytes, int code) {
  const std::string marker{'\xff', static_cast<char>(code)};
  for (size_t at = bytes.find(marker); at != std::string::npos; at = bytes.find(marker)) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[at + i]); };
    bytes.erase(at, 2 + byte(2) * 256 + byte(3));
  }
  return bytes;
}

// Some cameras leave out the Huffman tables if they are those of the standard.
TEST(BadJpeg, DoesNotUseTheTablesOfThePreviousImage) {
  constexpr int kQuantizers = 0xdb, kHuffman = 0xc4;
  const std::string standard = Encode(40, 56, {}), own = Encode(40, 56, {.optimized = true});
  JpegDecoder decoder;
  const auto decode = [&](const std::string& bytes) {
    Image image;
    decoder.Open(bytes, {});
    decoder.Decode({.height = 40, .width = 56}, &image);
    return image.pixels;
  };
  const auto expected = decode(standard);
  for (const std::string& before : {standard, own}) {
    decode(before);
    EXPECT_EQ(decode(Without(standard, kHuffman)), expected);
    decode(before);
    EXPECT_THAT(TextOf<DataError>([&] { decode(Without(standard, kQuantizers)); }),
                HasSubstr("Quantization table 0x00 was not defined"));
  }
}

TEST(BadJpeg, ConvertsCmykAndGrayToColor) {
  const struct {
    const char* name;
    Encoding encoding;
  } cases[] = {{"cmyk", {.in = JCS_CMYK, .file = JCS_CMYK, .components = 4}},
               {"ycck", {.in = JCS_CMYK, .file = JCS_YCCK, .components = 4}},
               {"gray", {.in = JCS_GRAYSCALE, .file = JCS_GRAYSCALE, .components = 1}},
               {"rgb", {.file = JCS_RGB, .horizontal = 1, .vertical = 1}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    ExpectRegionsEqualTheWhole(Encode(40, 50, c.encoding), 3, 10);
  }
  EXPECT_THAT(ErrorOf(Encode(16, 16, cases[1].encoding), 1),
              HasSubstr("cannot be decoded to gray: got CMYK"));
}

// CMYK files with Adobe's marker store 255 - ink; other CMYK files store the ink.
TEST(BadJpeg, DoesNotInvertInksWithoutAdobesMarker) {
  const std::string inverted = Encode(40, 50, {.in = JCS_CMYK, .file = JCS_CMYK, .components = 4});
  const size_t marker = FindMarker(inverted, 0xee);
  const auto length = static_cast<uint8_t>(inverted[marker + 3]);
  std::string plain = inverted;
  plain.erase(marker, 2 + length);
  Image a, b;
  DecodeImage(inverted, 3, &a);
  DecodeImage(plain, 3, &b);
  double product =
      0;  // of the deviations from the mean: dark pixels in one are bright in the other
  for (size_t i = 0; i < a.pixels.size(); ++i)
    product += (a.pixels[i] - 64.0) * (b.pixels[i] - 64.0);
  EXPECT_LT(product, 0);
}

TEST(BadJpeg, RefusesMoreThanEightBits) {
  for (char bits : {'\x0c', '\x10'}) {
    DamagedBytes file{Encode(16, 16, {})};
    file.SetByte(FindMarker(file.bytes, 0xc0) + 4, bits);  // precision of the frame header
    EXPECT_THAT(ErrorOf(file.bytes),
                HasSubstr(fmt::format("jpeg: cannot be decoded: Unsupported JPEG data precision {}",
                                      static_cast<int>(bits))));
  }
}

TEST(BadJpeg, NamesOtherFormats) {
  EXPECT_THAT(ErrorOf(std::string("GIF89a\x01\x00\x01\x00", 10)),
              HasSubstr("got a GIF, want a JPEG"));
  EXPECT_THAT(ErrorOf(std::string("BM\x46\x00\x00\x00", 6)), HasSubstr("got a BMP, want a JPEG"));
  EXPECT_THAT(ErrorOf("RIFF1234WEBP"), HasSubstr("got a WebP, want a JPEG"));
  EXPECT_THAT(ErrorOf("\xff\xd8 no jpeg"), HasSubstr("unknown format"));
}

// Changes the size in the frame header.
std::string WithSize(std::string bytes, int code, int height, int width) {
  const size_t frame = FindMarker(bytes, code);
  for (const auto& [at, value] : {std::pair{frame + 5, height}, {frame + 7, width}}) {
    bytes[at] = static_cast<char>(value >> 8);
    bytes[at + 1] = static_cast<char>(value & 255);
  }
  return bytes;
}

TEST(BadJpeg, RefusesAHugeSizeBeforeItAllocatesMemory) {
  EXPECT_EQ(ErrorOf(WithSize(Encode(16, 16, {}), 0xc0, 65500, 65500)),
            "[io.image] jpeg: size out of range: got 65500x65500, want at most 67108864 pixels");
  EXPECT_THAT(ErrorOf(WithSize(Encode(16, 16, {}), 0xc0, 65501, 16)),
              HasSubstr("Maximum supported image dimension is 65500 pixels"));
}

TEST(BadJpeg, DecodesAVeryWideImage) {
  const std::string bytes = Encode(24, 65500, {.quality = 20});
  LazyImage image;
  image.Open(bytes, {});
  EXPECT_EQ(image.width(), 65500);
  EXPECT_EQ(image.Decode({.top = 3, .left = 65400, .height = 9, .width = 100}).width, 100);
}

// A few hundred bytes claim a progressive image of the largest size.
TEST(BadJpeg, LimitsTheMemoryOfAProgressiveImage) {
  const std::string bytes = WithSize(
      Encode(16, 16, {.horizontal = 1, .vertical = 1, .progressive = true}), 0xc2, 8192, 8192);
  EXPECT_THAT(ErrorOf(bytes),
              HasSubstr("needs more than 256 MiB for several scans; save it as a baseline JPEG"));
}

// The last scan of a small image is repeated many times.
TEST(BadJpeg, LimitsTheNumberOfScans) {
  const std::string bytes = Encode(16, 16, {.progressive = true});
  const size_t last_scan = bytes.rfind("\xff\xda");
  const std::string scan = bytes.substr(last_scan, bytes.size() - 2 - last_scan);
  std::string bomb = bytes.substr(0, bytes.size() - 2);
  for (int i = 0; i < 200; ++i) bomb += scan;
  EXPECT_EQ(ErrorOf(bomb + "\xff\xd9"), "[io.image] jpeg: cannot be decoded: more than 100 scans");
}

// TensorFlow's tools accept such images, but checking a data set should report them.
TEST(BadJpeg, RejectsDamagedCodesOnRequest) {
  for (const bool progressive : {false, true}) {
    const std::string whole = Encode(64, 48, {.restart_rows = 0, .progressive = progressive});
    Image image;
    DecodeImage(whole, 3, &image, true);
    const std::string cut = whole.substr(0, whole.size() - 12) + "\xff\xd9";
    DecodeImage(cut, 3, &image);
    EXPECT_THROW(DecodeImage(cut, 3, &image, true), DataError) << progressive;
  }
}

TEST(BadJpeg, ThrowsOnlyDataErrorForAnyDamage) {
  const std::string whole = Encode(48, 40, {.restart_rows = 1, .progressive = false});
  Rng rng(9, RngPurpose::kData);
  LazyImage image;
  for (int round = 0; round < 2000; ++round) {
    DamagedBytes file{whole};
    for (int i = 0; i < 3; ++i)
      file.SetByte(rng.NextBelow(whole.size()), static_cast<char>(rng.Next()));
    try {
      image.Open(file.bytes, {});
      if (image.height() < 8 || image.width() < 8) continue;
      if (int64_t{image.height()} * image.width() > 1 << 20) continue;  // slow, not unsafe
      image.Decode({.top = 5, .left = 3, .height = image.height() - 7, .width = 5});
    } catch (const DataError&) {  // any other exception or a crash fails the test
    }
  }
}

}  // namespace
}  // namespace carole::io
