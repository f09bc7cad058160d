#include "io/preprocessing.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/resize.h"
#include "src/core/error.h"
#include "src/core/join_names.h"

namespace carole::io {

const PreprocessingEntry& FindPreprocessing(std::string_view name) {
  for (const PreprocessingEntry& entry : kPreprocessings) {
    if (entry.name == name) return entry;
  }
  throw UsageError(fmt::format(
      "[io.preprocessing] --preprocessing_name: unknown preprocessing: got '{}', want one of {}",
      name, JoinNames(kPreprocessings)));
}

const Normalization& NormalizationOf(const PreprocessingEntry& entry) {
  if (entry.normalization) return *entry.normalization;
  throw UsageError(fmt::format(
      "[io.preprocessing] --input_dtype: the preprocessing {} standardises each image by "
      "itself: got uint8, want fp32",
      entry.name));
}

void ToPixels(const PreprocessingEntry& entry, std::span<const float> values, int channels,
              std::span<uint8_t> pixels) {
  if (entry.normalization)
    return ToBytes(values, channels, 1 / entry.normalization->multiply,
                   entry.normalization->subtract, pixels);
  const auto [least, largest] = std::minmax_element(values.begin(), values.end());
  const float scale = *largest > *least ? 255 / (*largest - *least) : 1;
  const float offset = -*least * scale;
  ToBytes(values, channels, scale, {offset, offset, offset}, pixels);
}

void CheckPreprocessingSize(const PreprocessingEntry& entry, int height, int width) {
  if (std::max(height, width) <= entry.max_size) return;
  throw UsageError(fmt::format(
      "[io.preprocessing] {}: images too large for it: got {}x{}, want at most {} a side; the crop "
      "must fit an image whose shorter side is 256",
      entry.name, height, width, entry.max_size));
}

}  // namespace carole::io
