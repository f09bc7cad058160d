#include "io/augmentation/random_erasing.h"

#include <gmock/gmock.h>

#include <cmath>

#include "src/core/error.h"

namespace carole::io {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Sets a member through its setting.
template <typename T>
void Set(RandomErasing& erasing, std::string_view name, T value) {
  for (const Setting& setting : erasing.settings())
    if (setting.name == name) *std::get<T*>(setting.value) = value;
}

// Rectangles of timm 1.0.31 for uniform numbers that were given.
TEST(RandomErasing, RectanglesAreThoseOfTimm) {
  const RandomErasing erasing;
  const auto expect = [&](const RandomErasing::Draw& draw, const Region& want) {
    const auto got = erasing.RegionAt(224, 224, 1, draw);
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->top, want.top);
    EXPECT_EQ(got->left, want.left);
    EXPECT_EQ(got->height, want.height);
    EXPECT_EQ(got->width, want.width);
  };
  expect({.area = 0.5, .log_aspect = 0.5, .top = 0.3, .left = 0.7},
         {.top = 39, .left = 91, .height = 94, .width = 94});
  expect({.area = 0, .log_aspect = 0.1, .top = 0.99, .left = 0},
         {.top = 202, .left = 0, .height = 20, .width = 51});
  expect({.area = 1, .log_aspect = 0.8, .top = 0.5, .left = 0.5},
         {.top = 19, .left = 67, .height = 186, .width = 90});
}

// Two rectangles share the area; torchvision's limits; a rectangle must be smaller than the image.
TEST(RandomErasing, SettingsLimitTheRectangle) {
  RandomErasing erasing;
  const RandomErasing::Draw largest{.area = 1, .log_aspect = 0.5};
  EXPECT_EQ(erasing.RegionAt(60, 60, 3, largest)->height, 20);  // sqrt(3600 / 3 / 3)
  Set(erasing, "random_erasing_max_area", 0.33);
  Set(erasing, "random_erasing_max_aspect", 3.3);
  const Region torchvision = *erasing.RegionAt(100, 400, 1, {.area = 1, .log_aspect = 0});
  EXPECT_EQ(torchvision.height, 63);  // sqrt(0.33 * 40000 * 0.3)
  EXPECT_EQ(torchvision.width, 210);  // sqrt(0.33 * 40000 / 0.3)
  Set(erasing, "random_erasing_max_area", 1.0);
  EXPECT_FALSE(erasing.RegionAt(60, 60, 1, {.area = 1, .log_aspect = 0}).has_value());
}

// The values of 1000 images of ones, of 12x10 pixels with three channels, after erasing.
std::vector<std::vector<float>> Erased(const RandomErasing& erasing, float deviation = 1) {
  std::vector<std::vector<float>> images;
  for (int64_t i = 0; i < 1000; ++i) {
    Rng rng = AugmentationRng(7, "random_erasing", 2, i);
    images.emplace_back(12 * 10 * 3, 1.0f);
    erasing.Apply({.values = images.back(),
                   .height = 12,
                   .width = 10,
                   .channels = 3,
                   .deviation = deviation,
                   .rng = rng});
  }
  return images;
}

TEST(RandomErasing, ErasesWithItsProbabilityAndAreas) {
  RandomErasing erasing;
  EXPECT_FALSE(erasing.is_active());
  Set(erasing, "random_erasing_prob", 0.25);
  EXPECT_TRUE(erasing.is_active());
  int erased = 0;
  double area = 0;
  for (const std::vector<float>& image : Erased(erasing)) {
    const auto zeros = std::ranges::count(image, 0.0f);
    ASSERT_EQ(zeros + std::ranges::count(image, 1.0f), std::ssize(image));
    erased += zeros > 0;
    area += static_cast<double>(zeros) / static_cast<double>(image.size());
  }
  EXPECT_NEAR(erased / 1000.0, 0.25, 0.05);
  EXPECT_NEAR(area / erased, (0.02 + 1.0 / 3) / 2, 0.02);
}

TEST(RandomErasing, ModesSayWhatIsWritten) {
  RandomErasing erasing;
  Set(erasing, "random_erasing_prob", 1.0);
  for (const char* mode : {"rand", "pixel"}) {
    Set(erasing, "random_erasing_mode", std::string(mode));
    double sum = 0, squares = 0, count = 0;
    int pairs = 0, equal_pairs = 0;  // neighbors that were erased
    for (const std::vector<float>& image : Erased(erasing, 0.5f)) {
      for (size_t i = 0; i < image.size(); ++i) {
        if (image[i] == 1) continue;
        sum += image[i];
        squares += image[i] * image[i];
        ++count;
        if (i % 30 < 3 || image[i - 3] == 1) continue;
        ++pairs;
        equal_pairs += image[i] == image[i - 3];
      }
    }
    EXPECT_NEAR(sum / count, 0, 0.05) << mode;
    EXPECT_NEAR(std::sqrt(squares / count), 0.5, 0.03) << mode;
    EXPECT_EQ(equal_pairs, mode == std::string("rand") ? pairs : 0);
  }
}

TEST(RandomErasing, CountIsTheLargestNumberOfRectangles) {
  RandomErasing erasing;
  Set(erasing, "random_erasing_prob", 1.0);
  Set(erasing, "random_erasing_mode", std::string("rand"));
  Set(erasing, "random_erasing_count", int64_t{3});
  std::vector<int> images_with(5);
  for (const std::vector<float>& image : Erased(erasing)) {
    std::vector<float> colors;  // of the first channel
    for (size_t i = 0; i < image.size(); i += 3) {
      if (image[i] != 1 && std::ranges::find(colors, image[i]) == colors.end())
        colors.push_back(image[i]);
    }
    ++images_with.at(colors.size());
  }
  EXPECT_EQ(images_with[4], 0);
  for (int count : {1, 2, 3}) EXPECT_GT(images_with[count], 200) << count;
}

TEST(RandomErasing, ErrorsNameTheFlag) {
  const auto erasing = std::make_shared<RandomErasing>();
  const Augmentations all{.images = {{"random_erasing", erasing}}};
  EXPECT_TRUE(all.Active().empty());
  Set(*erasing, "random_erasing_prob", 0.5);
  EXPECT_EQ(all.Active().Describe(), "random_erasing");
  Set(*erasing, "random_erasing_mode", std::string("white"));
  EXPECT_THAT([&] { all.Active(); }, ThrowsMessage<UsageError>(HasSubstr(
                                         "\x1f$(random_erasing_mode): unknown value: got white, "
                                         "want one of const, rand, pixel")));
  Set(*erasing, "random_erasing_mode", std::string("pixel"));
  Set(*erasing, "random_erasing_prob", 1.5);
  EXPECT_THAT(
      [&] { all.Active(); },
      ThrowsMessage<UsageError>(HasSubstr("\x1f$(random_erasing_prob): out of range: got 1.5")));
}

}  // namespace
}  // namespace carole::io
