// Tests that the pixels shown of a batch (in TensorBoard, for example) are those of the files.
#include <gmock/gmock.h>

#include <vector>

#include "io/image/image.h"
#include "io/image/lazy_image.h"
#include "io/preprocessing/preprocessing.h"

namespace carole::io {
namespace {

constexpr int kSide = 128;

std::vector<uint8_t> PreprocessAndInvert(const PreprocessingEntry& entry, const Image& image) {
  std::vector<float> values(kSide * kSide * 3);
  LazyImage lazy_image(image.view());
  entry.eval({.image = lazy_image, .height = kSide, .width = kSide, .out = values});
  std::vector<uint8_t> pixels(values.size());
  ToPixels(entry, values, 3, pixels);
  return pixels;
}

// A uniform color stays the same, however the image is cropped and resized.
TEST(ToPixels, UndoesEachPreprocessing) {
  constexpr uint8_t kColor[] = {200, 100, 7};
  Image image{.height = 300, .width = 260, .channels = 3};
  for (int i = 0; i < 300 * 260 * 3; ++i) image.pixels.push_back(kColor[i % 3]);
  for (const PreprocessingEntry& entry : kPreprocessings) {
    if (!entry.normalization) continue;
    const auto pixels = PreprocessAndInvert(entry, image);
    for (size_t i = 0; i < pixels.size(); ++i)
      ASSERT_EQ(pixels[i], kColor[i % 3]) << entry.name << " " << i;
  }
}

TEST(ToPixels, StretchesStandardizedImagesToTheFullRange) {
  Image image{.height = kSide, .width = kSide, .channels = 3};
  for (int i = 0; i < kSide * kSide * 3; ++i)
    image.pixels.push_back(
        static_cast<uint8_t>(100 + i % 52));  // 100 to 151; stretching multiplies by 5
  const auto pixels = PreprocessAndInvert(FindPreprocessing("cifarnet"), image);
  for (size_t i = 0; i < pixels.size(); ++i) ASSERT_EQ(pixels[i], 5 * (image.pixels[i] - 100)) << i;
  const std::vector<float> equal(kSide, 0.25f);
  std::vector<uint8_t> flat(kSide, 9);
  ToPixels(FindPreprocessing("cifarnet"), equal, 1, flat);
  EXPECT_THAT(flat, ::testing::Each(0));
}

TEST(ToPixels, ClampsValuesOutsideTheRange) {
  std::vector<uint8_t> pixels(3);
  ToPixels(FindPreprocessing("lenet"), std::vector<float>{-7, 0, 7}, 1, pixels);
  EXPECT_THAT(pixels, ::testing::ElementsAre(0, 128, 255));
}

}  // namespace
}  // namespace carole::io
