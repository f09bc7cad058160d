// Preprocessing for nets of small images (LeNet, MNIST, CIFAR-10), which crop or pad to size.
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

// out = scale * in + offset, with one scale and offset for each channel.
struct Affine {
  std::array<float, kMaxChannels> scale;
  std::array<float, kMaxChannels> offset;
};

// The start of a centered crop of `to` pixels; negative if the image must be padded. The same as in
// TensorFlow's resize_image_with_crop_or_pad.
int CenterOffset(int from, int to) { return from >= to ? (from - to) / 2 : -((to - from) / 2); }

// The centered crop, which may reach beyond the image.
Region CentralCrop(const PreprocessingTask& task) {
  return {.top = CenterOffset(task.image.height(), task.height),
          .left = CenterOffset(task.image.width(), task.width),
          .height = task.height,
          .width = task.width};
}

// out = scale * crop + offset. The crop holds zeros where it reaches beyond the image. out is
// (height, width, channels).
void Apply(const ImageView& image, const Region& crop, const Affine& map, float* out) {
  const int channels = image.channels;
  // Scales and offsets are repeated to a whole row of the output. So the inner loop is the same for
  // any number of channels.
  thread_local std::vector<float> scale;
  thread_local std::vector<float> offset;
  const int row_values = crop.width * channels;
  scale.resize(row_values);
  offset.resize(row_values);
  for (int i = 0; i < row_values; ++i) {
    scale[i] = map.scale[i % channels];
    offset[i] = map.offset[i % channels];
  }
  const int shift = crop.left * channels;
  const int begin = std::clamp(-crop.left, 0, crop.width) * channels;
  const int end = std::clamp(image.width - crop.left, 0, crop.width) * channels;
  for (int y = 0; y < crop.height; ++y, out += row_values) {
    const int source_y = y + crop.top;
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

// For each channel, the exact sums of the values of a crop and of their squares.
struct Sums {
  std::array<int64_t, kMaxChannels> sum{};
  std::array<int64_t, kMaxChannels> squares{};
};

Sums SumCrop(const ImageView& image, const Region& crop) {
  Sums sums;
  const int y_end = std::min(crop.top + crop.height, image.height);
  const int x_begin = std::max(crop.left, 0);
  const int x_end = std::min(crop.left + crop.width, image.width);
  for (int y = std::max(crop.top, 0); y < y_end; ++y) {
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

// Returns the map from pixels to standardized values of
//   z = contrast * (x - channel mean) + channel mean + brightness.
// Every step is affine, so mean and deviation of z follow from sums over the bytes. No intermediate
// image is written.
Affine Standardize(const Sums& sums, const Region& crop, int channels, double brightness,
                   double contrast) {
  const double pixels = static_cast<double>(crop.height) * crop.width;
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

void CropOrPad(const PreprocessingTask& task, float scale, float offset) {
  const Affine map{.scale = {scale, scale, scale}, .offset = {offset, offset, offset}};
  Apply(task.image.DecodeAll(), CentralCrop(task), map, task.out.data());
}

}  // namespace

// The scale is a power of two, so the result is exact.
void PreprocessLenet(const PreprocessingTask& task) { CropOrPad(task, 1.0f / 128.0f, -1.0f); }

// Images of another size occur in prediction only. They are resized and rounded to integers.
void PreprocessMnistKeras(const PreprocessingTask& task) {
  constexpr float kScale = 1.0f / 255.0f;
  if (task.image.height() == task.height && task.image.width() == task.width)
    return CropOrPad(task, kScale, 0.0f);
  const FloatImage resized =
      Resize(ToFloats(task.image.DecodeAll(), 1), task.height, task.width, ResizeMethod::kArea);
  std::transform(resized.values.begin(), resized.values.end(), task.out.begin(),
                 [](float value) { return std::round(value) * kScale; });
}

void PreprocessCifarnetEval(const PreprocessingTask& task) {
  const Region crop = CentralCrop(task);
  const ImageView image = task.image.DecodeAll();
  const Sums sums = SumCrop(image, crop);
  Apply(image, crop, Standardize(sums, crop, image.channels, 0, 1), task.out.data());
}

void PreprocessCifarnetTrain(const PreprocessingTask& task) {
  const CifarnetDistortion d = DrawCifarnetDistortion(task.image.height(), task.image.width(),
                                                      task.height, task.width, *task.rng);
  const Region crop{.top = d.top, .left = d.left, .height = task.height, .width = task.width};
  const ImageView image = task.image.DecodeAll();
  const Sums sums = SumCrop(image, crop);
  const Affine map = Standardize(sums, crop, image.channels, d.brightness, d.contrast);
  Apply(image, crop, map, task.out.data());
  if (d.mirrored) Mirror(task.out.data(), task.height, task.width, image.channels);
}

}  // namespace carole::io
