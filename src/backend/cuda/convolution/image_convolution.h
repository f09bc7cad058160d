// Which convolutions of images, as nets' first layers are, tensor cores do by kernels of our own
// (image_convolution.cu). Private to the folder; knows no CUDA, so that tests can ask.
#pragma once

#include <optional>

#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// Forward, or the gradient of the filter. All lies NHWC, filters (K,R,S,C).
struct ImageConvolution {
  int images = 0, h = 0, w = 0, channels = 0;   // x
  int filters = 0, filter_h = 0, filter_w = 0;  // K, R, S
  int p = 0, q = 0;                             // y
  int stride = 1, top = 0, left = 0;

  constexpr int row_taps() const { return filter_w * channels; }
  constexpr int taps() const { return filter_h * row_taps(); }
  // Tensor cores take neighbors two by two: those of a row of the filter get a zero.
  constexpr int even_row_taps() const { return row_taps() + row_taps() % 2; }
  // Of a row or column of the image, under so many outputs of a filter of that size.
  constexpr int pixels_under(int outputs, int filter) const {
    return (outputs - 1) * stride + filter;
  }

  // Nothing for what these kernels do not do, on the device or at all.
  static std::optional<ImageConvolution> Of(const OpSpec& spec, const Device& device);
};

}  // namespace carole::cuda
