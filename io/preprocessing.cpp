#include "io/preprocessing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr int kMaxChannels = 3;

// An affine map for each channel.
struct Affine {
  std::array<float, kMaxChannels> scale;
  std::array<float, kMaxChannels> offset;
};

// A window of (height, width) pixels whose corner lies at (top, left) of the image; beyond the
// image are zeros.
struct Window {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};

// Where to begin so that the window is in the centre; negative to pad. TF's
// resize_image_with_crop_or_pad.
int CentreOffset(int from, int to) { return from >= to ? (from - to) / 2 : -((to - from) / 2); }

Window CentreWindow(const PreprocessingTask& task) {
  return {.top = CentreOffset(task.image.height, task.height),
          .left = CentreOffset(task.image.width, task.width),
          .height = task.height,
          .width = task.width};
}

// out = scale * window + offset. out is (height, width, channels).
void Apply(const ImageView& image, const Window& window, const Affine& map, float* out) {
  const int channels = image.channels;
  // One row of scales and offsets in memory order keeps the inner loop plain for any number of
  // channels.
  thread_local std::vector<float> scale;
  thread_local std::vector<float> offset;
  const int row_values = window.width * channels;
  scale.resize(row_values);
  offset.resize(row_values);
  for (int i = 0; i < row_values; ++i) {
    scale[i] = map.scale[i % channels];
    offset[i] = map.offset[i % channels];
  }
  const int shift = window.left * channels;
  const int begin = std::clamp(-window.left, 0, window.width) * channels;
  const int end = std::clamp(image.width - window.left, 0, window.width) * channels;
  for (int y = 0; y < window.height; ++y, out += row_values) {
    const int source_y = y + window.top;
    if (source_y < 0 || source_y >= image.height || begin >= end) {
      std::copy(offset.begin(), offset.end(), out);
      continue;
    }
    const uint8_t* row = image.pixels + int64_t{source_y} * image.width * channels;
    const float* s = scale.data();
    const float* o = offset.data();
    std::copy(o, o + begin, out);
    for (int i = begin; i < end; ++i) out[i] = s[i] * static_cast<float>(row[i + shift]) + o[i];
    std::copy(o + end, o + row_values, out + end);
  }
}

// Exact sums over the window of each channel's values and their squares.
struct Sums {
  std::array<int64_t, kMaxChannels> sum{};
  std::array<int64_t, kMaxChannels> squares{};
};

Sums SumWindow(const ImageView& image, const Window& window) {
  Sums sums;
  const int y_end = std::min(window.top + window.height, image.height);
  const int x_begin = std::max(window.left, 0);
  const int x_end = std::min(window.left + window.width, image.width);
  for (int y = std::max(window.top, 0); y < y_end; ++y) {
    for (int c = 0; c < image.channels; ++c) {
      const uint8_t* row = image.pixels + int64_t{y} * image.width * image.channels + c;
      uint32_t sum = 0;
      uint64_t squares = 0;
      for (int x = x_begin; x < x_end; ++x) {
        const uint32_t value = row[int64_t{x} * image.channels];
        sum += value;
        squares += value * value;
      }
      sums.sum[c] += sum;
      sums.squares[c] += static_cast<int64_t>(squares);
    }
  }
  return sums;
}

// The map that standardises z = contrast * (x - mean of its channel) + mean of its channel +
// brightness. Every step is affine, so mean and deviation of z follow from sums over the bytes and
// no picture in between is written.
Affine Standardise(const Sums& sums, const Window& window, int channels, double brightness,
                   double contrast) {
  const double pixels = static_cast<double>(window.height) * window.width;
  std::array<double, kMaxChannels> mean{};
  double mean_of_all = 0;
  for (int c = 0; c < channels; ++c) {
    mean[c] = sums.sum[c] / pixels + brightness;
    mean_of_all += mean[c] / channels;
  }
  double variance = 0;
  for (int c = 0; c < channels; ++c) {
    const double plain_mean = sums.sum[c] / pixels;
    const double within = std::max(sums.squares[c] / pixels - plain_mean * plain_mean, 0.0);
    const double between = mean[c] - mean_of_all;
    variance += (contrast * contrast * within + between * between) / channels;
  }
  const double deviation = std::max(std::sqrt(variance), 1 / std::sqrt(pixels * channels));
  Affine map{};
  for (int c = 0; c < channels; ++c) {
    const double plain_mean = sums.sum[c] / pixels;
    map.scale[c] = static_cast<float>(contrast / deviation);
    map.offset[c] = static_cast<float>((mean[c] - contrast * plain_mean - mean_of_all) / deviation);
  }
  return map;
}

void Mirror(float* out, int height, int width, int channels) {
  for (int y = 0; y < height; ++y, out += width * channels) {
    for (int a = 0, b = width - 1; a < b; ++a, --b) {
      std::swap_ranges(out + a * channels, out + (a + 1) * channels, out + b * channels);
    }
  }
}

}  // namespace

void PreprocessLenet(const PreprocessingTask& task) {
  constexpr float kScale = 1.0f / 128.0f;  // a power of two: exact
  constexpr Affine kMap{.scale = {kScale, kScale, kScale}, .offset = {-1, -1, -1}};
  Apply(task.image, CentreWindow(task), kMap, task.out.data());
}

void PreprocessCifarnetEval(const PreprocessingTask& task) {
  const Window window = CentreWindow(task);
  const Sums sums = SumWindow(task.image, window);
  Apply(task.image, window, Standardise(sums, window, task.image.channels, 0, 1), task.out.data());
}

void PreprocessCifarnetTrain(const PreprocessingTask& task) {
  constexpr int kPadding = 4;
  const int rows = task.image.height + 2 * kPadding - task.height;  // offsets beyond the first
  const int columns = task.image.width + 2 * kPadding - task.width;
  if (rows < 0 || columns < 0) {
    throw DataError(
        fmt::format("[io.preprocessing] cifarnet: image too small: got {}x{}, want at least {}x{}",
                    task.image.height, task.image.width, task.height - 2 * kPadding,
                    task.width - 2 * kPadding));
  }
  Rng& rng = *task.rng;
  const Window window{.top = static_cast<int>(rng.NextBelow(rows + 1)) - kPadding,
                      .left = static_cast<int>(rng.NextBelow(columns + 1)) - kPadding,
                      .height = task.height,
                      .width = task.width};
  const bool mirrored = rng.NextFloat() < 0.5f;
  const double brightness = -63.0 + 126.0 * rng.NextFloat();
  const double contrast = 0.2 + 1.6 * rng.NextFloat();
  const Sums sums = SumWindow(task.image, window);
  const Affine map = Standardise(sums, window, task.image.channels, brightness, contrast);
  Apply(task.image, window, map, task.out.data());
  if (mirrored) Mirror(task.out.data(), task.height, task.width, task.image.channels);
}

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

}  // namespace carole::io
