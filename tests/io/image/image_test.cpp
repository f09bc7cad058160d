#include "io/image/image.h"

#include <nlohmann/json.hpp>

#include "src/core/hash.h"
#include "tests/io/damage.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

std::string_view PixelBytes(const Image& image) {
  return {reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()};
}

Image Decode(std::string_view bytes, int channels) {
  Image image;
  DecodeImage(bytes, channels, &image);
  return image;
}

// The expected bytes were recorded from TensorFlow's decode_jpeg with its defaults.
TEST(Jpeg, EqualsTensorFlowBitForBit) {
  const auto golden = nlohmann::json::parse(ReadText(TestData() + "/io_preprocessing.json"));
  Image image;  // is reused, while the size changes from image to image
  for (const auto& entry : golden["decoded"]) {
    const std::string name = entry["file"];
    SCOPED_TRACE(name);
    DecodeImage(ReadText(TestData() + "/io_images/" + name), 3, &image);
    EXPECT_EQ(image.height, entry["shape"][0]);
    EXPECT_EQ(image.width, entry["shape"][1]);
    EXPECT_EQ(fmt::format("{:016x}", Fnv1a64(PixelBytes(image))),
              entry["fnv1a64_of_rgb_bytes"].get<std::string>());
  }
  EXPECT_GE(golden["decoded"].size(), 10u);
}

TEST(Jpeg, ReplicatesGrayToColor) {
  const std::string bytes = ReadText(TestData() + "/io_images/digit_28_gray.jpg");
  const Image gray = Decode(bytes, 1);
  const Image color = Decode(bytes, 3);
  ASSERT_EQ(gray.pixels.size(), 28u * 28u);
  for (size_t i = 0; i < color.pixels.size(); ++i) ASSERT_EQ(color.pixels[i], gray.pixels[i / 3]);
}

TEST(Jpeg, RefusesToConvertCmykToGray) {
  const std::string bytes = ReadText(TestData() + "/io_images/cmyk.jpg");
  EXPECT_THAT(TextOf<DataError>([&] { Decode(bytes, 1); }),
              HasSubstr("[io.image] jpeg: cannot be decoded to gray"));
  EXPECT_EQ(Decode(bytes, 3).height, 60);  // the decoder is usable after an error
}

TEST(Jpeg, RejectsTruncationAnywhere) {
  const std::string bytes = ReadText(TestData() + "/io_images/landscape_420.jpg");
  for (size_t size : {size_t{3}, size_t{20}, size_t{200}, bytes.size() / 2, bytes.size() - 20}) {
    EXPECT_THAT(TextOf<DataError>([&] { Decode(bytes.substr(0, size), 3); }),
                HasSubstr("[io.image] jpeg: "));
  }
  EXPECT_EQ(Decode(bytes, 3).width, 167);
}

TEST(Jpeg, ThrowsOnlyDataErrorForFlippedBits) {
  const std::string bytes = ReadText(TestData() + "/io_images/tiny_odd.jpg");
  Image image;
  for (size_t offset = 0; offset < bytes.size(); ++offset) {
    DamagedBytes damaged{bytes};
    damaged.FlipBit(offset, static_cast<int>(offset % 8));
    try {
      DecodeImage(damaged.bytes, 3, &image);
    } catch (const DataError&) {  // any other exception or a crash fails the test
    }
  }
}

Image Gradient(int height, int width, int channels) {
  Image image;
  AllocateImage("test", height, width, channels, &image);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(i * 37 + i / 11);
  return image;
}

TEST(Png, DecodesWhatWasEncodedWithoutLoss) {
  for (int channels : {1, 3}) {
    const Image image = Gradient(13, 29, channels);
    const Image back = Decode(EncodePng(image.view()), channels);
    EXPECT_EQ(back.height, 13);
    EXPECT_EQ(back.width, 29);
    EXPECT_EQ(back.pixels, image.pixels);
  }
}

TEST(Png, ConvertsBetweenGrayAndColor) {
  const Image gray = Gradient(5, 7, 1);
  const Image color = Decode(EncodePng(gray.view()), 3);
  for (size_t i = 0; i < color.pixels.size(); ++i) EXPECT_EQ(color.pixels[i], gray.pixels[i / 3]);
  EXPECT_EQ(Decode(EncodePng(color.view()), 1).pixels, gray.pixels);
  // The weights are those of JPEG's luma: 0.299, 0.587 and 0.114.
  const uint8_t primaries[] = {255, 0, 0, 0, 255, 0, 0, 0, 255};
  EXPECT_THAT(Decode(EncodePng({primaries, 1, 3, 3}), 1).pixels, testing::ElementsAre(76, 149, 29));
}

// The files were written by other programs: a palette, 16 bits with alpha, and 1 bit interlaced.
TEST(Png, DecodesOtherColorTypes) {
  for (const char* name : {"io_palette_alpha.png", "io_rgba16.png", "io_gray1_interlaced.png"}) {
    SCOPED_TRACE(name);
    const std::string bytes = ReadText(TestData() + "/" + name);
    const Image color = Decode(bytes, 3);
    ASSERT_EQ(color.height, 3);
    ASSERT_EQ(color.width, 5);
    // Row 1 is white, the rest black.
    for (int i = 0; i < 3 * 5 * 3; ++i) EXPECT_EQ(color.pixels[i], i / 15 == 1 ? 255 : 0);
    const Image gray = Decode(bytes, 1);
    for (int i = 0; i < 3 * 5; ++i) EXPECT_EQ(gray.pixels[i], i / 5 == 1 ? 255 : 0);
  }
}

TEST(Png, RejectsDamage) {
  const std::string bytes = EncodePng(Gradient(28, 28, 1).view());
  DamagedBytes flipped{bytes};
  flipped.FlipBit(bytes.size() / 2);
  EXPECT_THAT(TextOf<DataError>([&] { Decode(flipped.bytes, 1); }),
              HasSubstr("[io.image] png: cannot be decoded: "));
  EXPECT_THAT(TextOf<DataError>([&] { Decode(bytes.substr(0, bytes.size() / 2), 1); }),
              HasSubstr("[io.image] png: cannot be decoded: truncated file"));
}

TEST(Image, RecognizesFileNamesOfImages) {
  for (const char* name : {"a.jpg", "b/a.JPEG", "a.b.Png", "a.jfif", "a.JPE"})
    EXPECT_TRUE(HasImageName(name)) << name;
  for (const char* name : {"a.gif", "jpg", ".jpg", "b/._a.jpg", "a.jpg.txt", ""})
    EXPECT_FALSE(HasImageName(name)) << name;
}

TEST(Image, ChecksTheSizeBeforeItAllocatesMemory) {
  Image image;
  EXPECT_THAT(
      TextOf<DataError>([&] { AllocateImage("png", 1 << 20, 1 << 20, 3, &image); }),
      HasSubstr(
          "[io.image] png: size out of range: got 1048576x1048576, want at most 67108864 pixels"));
  EXPECT_TRUE(image.pixels.empty());
}

TEST(Image, RejectsAnUnknownFormat) {
  const auto error = [](const std::string& bytes) {
    return TextOf<DataError>([&] { Decode(bytes, 3); });
  };
  EXPECT_EQ(error("\x01\x02 what"),
            "[io.image] image: unknown format: got 7 bytes that begin with 0x01022077686174, want "
            "a JPEG or a PNG");
  EXPECT_EQ(error("GIF89a"),
            "[io.image] image: wrong format: got a GIF, want a JPEG or a PNG; convert it");
  EXPECT_EQ(error(""),
            "[io.image] image: empty file: got 0 bytes, want a JPEG or a PNG; copy the image "
            "again");
  EXPECT_THAT(error(std::string(9, '\0')), HasSubstr("only zeros: got 9 bytes"));
  const std::string box("\0\0\0\x1c", 4);
  const std::pair<std::string, std::string> cases[] = {
      {box + "ftypheic", "got a HEIC image"},
      {box + "ftypavif", "got an AVIF image"},
      {box + "ftypisom", "got a video"},
      {"RIFF\x10  \x02WEBPVP8 ", "got a WebP"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:12",
       "got a Git LFS pointer, want a JPEG or a PNG; fetch the image: git lfs pull"},
      {std::string("\0\x05\x16\x07\0", 5), "got attributes of a file on macOS"},
      {"Not Found\n",
       "got the text 'Not Found\\n', want a JPEG or a PNG; download the image again"},
      {"\r\n <!DOCTYPE html><html>", "got an HTML page"},
      {"\xef\xbb\xbf<HTML>404", "got an HTML page, want a JPEG or a PNG; download the image again"},
  };
  for (const auto& [bytes, want] : cases) EXPECT_THAT(error(bytes), HasSubstr(want));
}

}  // namespace
}  // namespace carole::io
