// Decides which convolutions of images (the first layers of nets) run on our own tensor-core
// kernels (image_convolution.cu, image_convolution_backward.cu). Private to src/backend/cuda.
// Includes no CUDA headers, so that tests can include it.
#pragma once

#include <optional>

#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// The geometry of such a convolution, or of the gradient of its filter. Tensors lie NHWC in memory,
// filters (K,R,S,C).
struct ImageConvolution {
  int images = 0, h = 0, w = 0, channels = 0;   // x
  int filters = 0, filter_h = 0, filter_w = 0;  // K, R, S
  int p = 0, q = 0;                             // y
  int stride = 1, top = 0, left = 0;

  // Taps are the elements of a filter: filter_h rows of filter_w * channels.
  constexpr int row_taps() const { return filter_w * channels; }
  constexpr int taps() const { return filter_h * row_taps(); }
  // Tensor cores take taps in pairs, so an odd row of the filter gets a zero.
  constexpr int even_row_taps() const { return row_taps() + row_taps() % 2; }
  // Returns how many pixels, in one direction, lie under `outputs` outputs of a filter of this
  // size.
  constexpr int pixels_under(int outputs, int filter) const {
    return (outputs - 1) * stride + filter;
  }

  // Returns the geometry of an operation, or nothing if these kernels do not support the operation
  // or the device.
  static std::optional<ImageConvolution> Of(const OpSpec& spec, const Device& device);
};

}  // namespace carole::cuda
