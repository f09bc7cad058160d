#include "io/image/color.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/core/check.h"

namespace carole::io {
namespace {

template <typename Change>
void ForEachColor(FloatImage& image, Change change) {
  CAROLE_CHECK_EQ(image.channels, 3, "channels of an image whose hue or saturation changes");
  for (size_t i = 0; i < image.values.size(); i += 3) change(&image.values[i]);
}

// Rotates the hue of one color by `sixths` of a turn. The largest and the smallest channel value
// stay the same, so HSV's S and V do too.
void RotateHue(float* rgb, float sixths) {
  // The channels from largest to smallest value, for each sixth of the hue circle.
  constexpr int kOrder[6][3] = {{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}, {2, 0, 1}, {0, 2, 1}};
  int sixth = 0;
  const auto fits = [&](const int* order) {
    return rgb[order[0]] >= rgb[order[1]] && rgb[order[1]] >= rgb[order[2]];
  };
  while (!fits(kOrder[sixth])) ++sixth;
  const float high = rgb[kOrder[sixth][0]];
  const float middle = rgb[kOrder[sixth][1]];
  const float low = rgb[kOrder[sixth][2]];
  if (high == low) return;
  // With rising hue, the middle channel rises in even sixths and falls in odd ones.
  const float ratio = (middle - low) / (high - low);
  float hue = static_cast<float>(sixth) + (sixth % 2 == 0 ? ratio : 1 - ratio) + sixths;
  hue -= 6 * std::floor(hue / 6);
  sixth = std::min(static_cast<int>(hue), 5);
  const float rest = hue - static_cast<float>(sixth);
  rgb[kOrder[sixth][0]] = high;
  rgb[kOrder[sixth][1]] = low + (sixth % 2 == 0 ? rest : 1 - rest) * (high - low);
  rgb[kOrder[sixth][2]] = low;
}

}  // namespace

void AdjustBrightness(FloatImage& image, float delta) {
  for (float& value : image.values) value += delta;
}

void AdjustContrast(FloatImage& image, float factor) {
  std::array<double, 3> mean{};
  const size_t channels = image.channels;
  for (size_t i = 0; i < image.values.size(); ++i) mean[i % channels] += image.values[i];
  for (double& m : mean) m /= static_cast<double>(image.height) * image.width;
  for (size_t i = 0; i < image.values.size(); ++i) {
    const auto m = static_cast<float>(mean[i % channels]);
    image.values[i] = (image.values[i] - m) * factor + m;
  }
}

void AdjustSaturation(FloatImage& image, float factor) {
  ForEachColor(image, [&](float* rgb) {
    // H and V stay the same, so the distance of each channel from the largest one is scaled.
    const float high = std::max({rgb[0], rgb[1], rgb[2]});
    const float range = high - std::min({rgb[0], rgb[1], rgb[2]});
    if (range <= 0) return;
    const float scale = std::min(factor, std::max(high, 0.0f) / range);
    for (int c = 0; c < 3; ++c) rgb[c] = high + (rgb[c] - high) * scale;
  });
}

void AdjustHue(FloatImage& image, float delta) {
  ForEachColor(image, [&](float* rgb) { RotateHue(rgb, 6 * delta); });
}

void ClipToUnit(FloatImage& image) {
  for (float& value : image.values) value = std::clamp(value, 0.0f, 1.0f);
}

}  // namespace carole::io
