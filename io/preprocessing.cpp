#include "io/preprocessing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/core/error.h"

namespace carole::io {

const PreprocessingEntry& FindPreprocessing(std::string_view name) {
  std::string names;
  for (const PreprocessingEntry& entry : kPreprocessings) {
    if (entry.name == name) return entry;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  throw UsageError(fmt::format(
      "[io.preprocessing] --preprocessing_name: unknown preprocessing: got '{}', want one of {}",
      name, names));
}

void ToPixels(const PreprocessingEntry& entry, std::span<const float> values, int channels,
              std::span<uint8_t> pixels) {
  float scale = entry.scale, offset = entry.offset;
  if (scale == 0) {
    const auto [least, largest] = std::minmax_element(values.begin(), values.end());
    scale = *largest > *least ? 255 / (*largest - *least) : 1;
    offset = -*least * scale;
  }
  for (size_t i = 0; i < pixels.size(); ++i) {
    const float mean = entry.less_means ? kImagenetMeans[i % static_cast<size_t>(channels)] : 0;
    const float value = values[i] * scale + offset + mean;
    pixels[i] = static_cast<uint8_t>(std::lround(std::clamp(value, 0.0f, 255.0f)));
  }
}

void CheckPreprocessingSize(const PreprocessingEntry& entry, int height, int width) {
  if (std::max(height, width) <= entry.max_size) return;
  throw UsageError(fmt::format(
      "[io.preprocessing] {}: images too large for it: got {}x{}, want at most {} a side; the crop "
      "must fit an image whose shorter side is 256",
      entry.name, height, width, entry.max_size));
}

}  // namespace carole::io
