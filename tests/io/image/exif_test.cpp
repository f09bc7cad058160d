#include "io/image/exif.h"

#include <algorithm>

#include "io/image/jpeg_encode.h"
#include "tests/io/image/exif_bytes.h"

namespace carole::io {
namespace {

// An image of 2x3 pixels with the values 0 to 5.
constexpr uint8_t kPixels[] = {0, 1, 2, 3, 4, 5};
constexpr ImageView kImage{.pixels = kPixels, .height = 2, .width = 3, .channels = 1};

TEST(Exif, ReadsTheOrientationOfJpegAndPng) {
  const std::string jpeg = EncodeJpeg(kImage, 90);
  const std::string png = EncodePng(kImage);
  EXPECT_EQ(ExifOrientation(jpeg), 1);
  EXPECT_EQ(ExifOrientation(png), 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(ExifOrientation(WithOrientation(jpeg, orientation)), orientation);
    EXPECT_EQ(ExifOrientation(WithOrientation(png, orientation)), orientation);
  }
  EXPECT_EQ(ExifOrientation(WithOrientation(jpeg, 9)), 1);
  EXPECT_EQ(ExifOrientation("MM"), 1);
}

TEST(Exif, SurvivesDamage) {
  for (const std::string& file : {EncodeJpeg(kImage, 90), EncodePng(kImage)}) {
    const std::string whole = WithOrientation(file, 6);
    for (size_t size = 0; size < whole.size(); ++size) {
      const int orientation = ExifOrientation(whole.substr(0, size));
      EXPECT_TRUE(orientation == 1 || orientation == 6) << size << ": " << orientation;
    }
    for (size_t i = 0; i < std::min<size_t>(whole.size(), 120); ++i) {
      DamagedBytes damaged{whole};
      damaged.SetByte(i, '\xff');
      const int orientation = ExifOrientation(damaged.bytes);
      EXPECT_TRUE(orientation >= 1 && orientation <= 8) << i << ": " << orientation;
    }
  }
}

// The pixels of the eight orientations, written down from the definition of EXIF (CIPA DC-008): for
// 6, row 0 of the file is the right side of the scene.
TEST(Exif, TurnsImages) {
  const std::vector<uint8_t> want[] = {{0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0},
                                       {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2},
                                       {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image turned = TurnUpright(kImage, orientation);
    EXPECT_EQ(turned.pixels, want[orientation - 1]) << orientation;
    EXPECT_EQ(turned.height, orientation < 5 ? 2 : 3);
    EXPECT_EQ(turned.width, orientation < 5 ? 3 : 2);
  }
}

}  // namespace
}  // namespace carole::io
