// The preprocessings of nets for small pictures, which are cut or padded to size.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "io/image/resize.h"
#include "io/preprocessing/distortion.h"
#include "io/preprocessing/preprocessing.h"

namespace carole::io {
namespace {

constexpr int kMaxChannels = 3;

// An affine map for each channel.
struct Affine {
  std::array<float, kMaxChannels> scale;
  std::array<float, kMaxChannels> offset;
};

// Where to begin so that the window is in the center; negative to pad. TF's
// resize_image_with_crop_or_pad.
int CenterOffset(int from, int to) { return from >= to ? (from - to) / 2 : -((to - from) / 2); }

Region CenterWindow(const PreprocessingTask& task) {
  return {.top = CenterOffset(task.picture.height(), task.height),
          .left = CenterOffset(task.picture.width(), task.width),
          .height = task.height,
          .width = task.width};
}

// out = scale * window + offset; beyond the image the window holds zeros. out is (height, width,
// channels).
void Apply(const ImageView& image, const Region& window, const Affine& map, float* out) {
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

Sums SumWindow(const ImageView& image, const Region& window) {
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

// The map that standardizes z = contrast * (x - mean of its channel) + mean of its channel +
// brightness. Every step is affine, so mean and deviation of z follow from sums over the bytes and
// no picture in between is written.
Affine Standardize(const Sums& sums, const Region& window, int channels, double brightness,
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

void CutOrPad(const PreprocessingTask& task, float scale, float offset) {
  const Affine map{.scale = {scale, scale, scale}, .offset = {offset, offset, offset}};
  Apply(task.picture.DecodeAll(), CenterWindow(task), map, task.out.data());
}

}  // namespace

// The scale is a power of two: exact.
void PreprocessLenet(const PreprocessingTask& task) { CutOrPad(task, 1.0f / 128.0f, -1.0f); }

// Pictures of another size, which only a prediction has, are resized, to whole values.
void PreprocessMnistKeras(const PreprocessingTask& task) {
  constexpr float kScale = 1.0f / 255.0f;
  if (task.picture.height() == task.height && task.picture.width() == task.width)
    return CutOrPad(task, kScale, 0.0f);
  const FloatImage resized =
      Resize(ToFloats(task.picture.DecodeAll(), 1), task.height, task.width, ResizeMethod::kArea);
  std::transform(resized.values.begin(), resized.values.end(), task.out.begin(),
                 [](float value) { return std::round(value) * kScale; });
}

void PreprocessCifarnetEval(const PreprocessingTask& task) {
  const Region window = CenterWindow(task);
  const ImageView image = task.picture.DecodeAll();
  const Sums sums = SumWindow(image, window);
  Apply(image, window, Standardize(sums, window, image.channels, 0, 1), task.out.data());
}

void PreprocessCifarnetTrain(const PreprocessingTask& task) {
  const CifarnetDistortion d = DrawCifarnetDistortion(task.picture.height(), task.picture.width(),
                                                      task.height, task.width, *task.rng);
  const Region window{.top = d.top, .left = d.left, .height = task.height, .width = task.width};
  const ImageView image = task.picture.DecodeAll();
  const Sums sums = SumWindow(image, window);
  const Affine map = Standardize(sums, window, image.channels, d.brightness, d.contrast);
  Apply(image, window, map, task.out.data());
  if (d.mirrored) Mirror(task.out.data(), task.height, task.width, image.channels);
}

}  // namespace carole::io
