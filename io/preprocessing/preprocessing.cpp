#include "io/preprocessing/preprocessing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <vector>

#include "io/image/resize.h"
#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::io {
namespace {

// (x - mean) / deviation, over the whole image. A constant image becomes zeros.
void Standardize(std::span<float> values) {
  double sum = 0, squares = 0;
  for (const float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const float value : values) squares += (value - mean) * (value - mean);
  // The colors were standardized already. A smaller deviation is only rounding noise, which must
  // not be amplified.
  constexpr double kMinDeviation = 1e-5;
  const double deviation =
      std::max(std::sqrt(squares / static_cast<double>(values.size())), kMinDeviation);
  for (float& value : values) value = static_cast<float>((value - mean) / deviation);
}

// Preprocesses in color, then weighs the channels (see Preprocess()).
void ToGray(const PreprocessingEntry& entry, PreprocessingFunction function,
            const PreprocessingTask& task) {
  constexpr auto& kWeights = kGrayWeights;
  thread_local std::vector<float> colors;
  colors.resize(task.out.size() * kWeights.size());
  PreprocessingTask in_color = task;
  in_color.out = colors;
  function(in_color);
  // The means of the three channels differ. Replaces the weighed color means by the gray mean.
  float offset = 0;
  if (entry.normalization) {
    const auto& [subtract, multiply] = *entry.normalization;
    for (size_t c = 0; c < kWeights.size(); ++c) offset += kWeights[c] * subtract[c] * multiply;
    offset -= subtract[0] * multiply;
  }
  for (size_t i = 0; i < task.out.size(); ++i) {
    const float* rgb = &colors[i * kWeights.size()];
    task.out[i] = rgb[0] * kWeights[0] + rgb[1] * kWeights[1] + rgb[2] * kWeights[2] + offset;
  }
  if (!entry.normalization) Standardize(task.out);
}

}  // namespace

const PreprocessingEntry& FindPreprocessing(std::string_view name) {
  for (const PreprocessingEntry& entry : kPreprocessings) {
    if (entry.name == name) return entry;
  }
  throw UsageError({.tag = "io.preprocessing",
                    .option = "preprocessing_name",
                    .problem = "unknown preprocessing",
                    .got = fmt::format("'{}'", name),
                    .want = "one of " + JoinNames(kPreprocessings)});
}

const Normalization& NormalizationOf(const PreprocessingEntry& entry) {
  if (entry.normalization) return *entry.normalization;
  throw UsageError({.tag = "io.preprocessing",
                    .option = "input_dtype",
                    .problem = fmt::format("the preprocessing {} standardizes each image with its "
                                           "own mean and deviation",
                                           entry.name),
                    .got = "uint8",
                    .want = "fp32"});
}

float DeviationOf(const PreprocessingEntry& entry) {
  constexpr float kImagenetDeviation = 57.6f;  // of pixels, over all three channels
  return entry.normalization ? kImagenetDeviation * entry.normalization->multiply : 1;
}

void ToPixels(const PreprocessingEntry& entry, std::span<const float> values, int channels,
              std::span<uint8_t> pixels) {
  if (entry.normalization)
    return ToBytes(values, channels, 1 / entry.normalization->multiply,
                   entry.normalization->subtract, pixels);
  const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
  const float scale = *largest > *smallest ? 255 / (*largest - *smallest) : 1;
  const float offset = -*smallest * scale;
  ToBytes(values, channels, scale, {offset, offset, offset}, pixels);
}

void CheckPreprocessingSize(const PreprocessingEntry& entry, int height, int width) {
  if (std::max(height, width) <= entry.max_size) return;
  throw UsageError(fmt::format(
      "[io.preprocessing] {}: image size too large for this preprocessing: got {}x{}, want at most "
      "{} on each side; the crop must fit an image whose shorter side is 256",
      entry.name, height, width, entry.max_size));
}

void Preprocess(const PreprocessingEntry& entry, PreprocessingFunction function,
                const PreprocessingTask& task) {
  const bool to_gray =
      task.image.channels() == 3 && std::ssize(task.out) == int64_t{task.height} * task.width;
  to_gray ? ToGray(entry, function, task) : function(task);
}

}  // namespace carole::io
