// Vector kernels for operations that oneDNN lacks or does not fuse. They are compiled once for each
// x86-64 level (vector_simd.cpp), and Vectors() returns the table for this CPU. They start no
// threads: callers split the work.
//
// T is the type in which activations and their gradients are stored, float or Bf16. Everything else
// is fp32, and so is all arithmetic.
#pragma once

#include <array>
#include <cstdint>

#include "src/core/float16.h"

namespace carole::onednn {

// A matrix of `pixels` rows and `lanes` channels. Row i begins at element i * stride. In blocked
// layouts, lanes = stride = 16 or 8; in NHWC, lanes = stride = C. The arrays per channel in the
// functions below have `lanes` entries.
struct Plane {
  int64_t pixels;
  int64_t lanes;
  int64_t stride;
};

// Says how the backward pass finds the mask of the ReLU, which lets a gradient pass where
// 0 < y < top: from y, or from x by computing y again as x * scale + shift. If `y` and `scale` are
// null, there is no ReLU.
template <typename T>
struct ReluMask {
  const T* y = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  float top = 0;
};

// The random words for a range of elements. dropout_mask.h defines which elements they keep.
struct DropoutWords {
  std::array<uint32_t, 2> key, stream;  // of the layer's Rng
  uint64_t first;                       // number of the word of element 0
  // keep * 2^24, rounded up. An element is kept if the upper 24 bits of its word are below this.
  uint32_t threshold;
  float scale;  // 1 / keep
};

// Sizes of a depthwise convolution: images are height x width, results p x q, windows r x s pixels.
struct DepthwiseWindow {
  int64_t height, width, p, q, r, s;
  int64_t stride_h, stride_w, top, left;
  int64_t lanes;  // channels of a pixel; also the distance between pixels
};

// The table of kernels.

template <typename T>
struct VectorKernels {
  // mean, and sum of squared deviations m2, of each channel. Sums are taken relative to the first
  // pixel, so that one pass suffices and large means cause no cancellation.
  void (*moments)(const T* x, Plane plane, float* mean, float* m2);
  // y = x * scale + shift [+ residual]; with `relu`, clamped to [0, top].
  void (*normalize)(const T* x, const T* residual, T* y, Plane plane, const float* scale,
                    const float* shift, bool relu, float top);
  // g = masked (dy [+ dy2]); sum_g = sums of g; sum_gx = sums of g * (x - mean). g is stored in
  // masked_dy unless that is null; it must not be null if dy2 is used. Pixels of dy are dy_stride
  // elements apart, here and below.
  void (*backward_sums)(const T* dy, int64_t dy_stride, const T* dy2, const T* x, ReluMask<T> mask,
                        const float* mean, Plane plane, float* sum_g, float* sum_gx, T* masked_dy);
  // dx = a * (g - k1 - (x - mean) * k2) [+ addend], with g = masked dy.
  void (*backward_data)(const T* dy, int64_t dy_stride, const T* x, ReluMask<T> mask,
                        const float* mean, const float* a, const float* k1, const float* k2,
                        const T* addend, Plane plane, T* dx);
  void (*relu)(const T* x, T* y, int64_t count, float ceiling);  // ceiling 0: none
  void (*relu_backward)(const T* dy, const T* y, T* dx, int64_t count, float ceiling);
  // y = relu6(x + 3) * factor; with `swish` also times x (HardActivationAttributes).
  void (*hard)(const T* x, T* y, int64_t count, bool swish, float factor);
  void (*hard_backward)(const T* dy, const T* x, T* dx, int64_t count, bool swish, float factor);
  void (*add)(const T* a, const T* b, T* sum, int64_t count);
  void (*scale)(const T* x, T* y, int64_t count, float factor);
  // y = a + factor * b
  void (*scaled_add)(const T* a, const T* b, T* y, int64_t count, float factor);
  // dw (r, s, lanes) = sums of x * dy over one image. dw is overwritten.
  void (*depthwise_filter)(const T* x, const T* dy, const DepthwiseWindow& window, float* dw);
  // Copies the plane's lanes. Pixels of `from` are from_stride elements apart.
  void (*copy_lanes)(const T* from, int64_t from_stride, T* to, Plane plane);
  // y = x * scale for the elements that dropout keeps, else 0. Element i has word first + i.
  void (*dropout)(const T* x, T* y, int64_t count, const DropoutWords& words);
  // For each pixel: y_c = x_c * s_c^-beta, with s_c = bias + alpha * (sum of the squares of the
  // channels from c - radius to c + radius). At most 4096 channels.
  void (*lrn)(const T* x, T* y, Plane plane, int64_t radius, float bias, float alpha, float beta);
  void (*lrn_backward)(const T* dy, const T* x, T* dx, Plane plane, int64_t radius, float bias,
                       float alpha, float beta);
};

// Returns the table for this CPU.
template <typename T>
const VectorKernels<T>& Vectors();

}  // namespace carole::onednn
