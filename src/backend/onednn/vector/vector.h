// Our own vector kernels, for what oneDNN lacks or fuses too little. Compiled once for each x86-64
// level (vector.cpp); Vectors() picks the table for this CPU. None of them starts threads: callers
// split the work.
//
// Planes: `pixels` rows of `lanes` channels, row i starting at i * stride (blocked layouts: lanes =
// stride = 16 or 8; NHWC: lanes = stride = C). Per-channel arrays have `lanes` entries.
//
// T is how activations and their gradients are stored, float or Bf16; all else, and all arithmetic,
// is fp32.
#pragma once

#include <array>
#include <cstdint>

#include "src/core/float16.h"

namespace carole::onednn {

struct Plane {
  int64_t pixels;
  int64_t lanes;
  int64_t stride;
};

// How the backward pass knows where the ReLU let through what came, neither 0 nor its top: from y,
// or from x by computing the forward pass again, or not at all.
template <typename T>
struct ReluMask {
  const T* y = nullptr;
  const float* scale = nullptr;  // with shift: y was x * scale + shift between 0 and top
  const float* shift = nullptr;
  float top = 0;  // likewise where y shows it
};

// Which random words decide over a run of elements (dropout_mask.h says the rule).
struct DropoutWords {
  std::array<uint32_t, 2> key, stream;  // of the layer's Rng
  uint64_t first;                       // word of element 0
  uint32_t threshold;  // keep * 2^24, rounded up: an element stays when its 24 bits are below
  float scale;         // 1 / keep
};

// Sizes of a depthwise convolution: an image height x width, results p x q, a window r x s.
struct DepthwiseWindow {
  int64_t height, width, p, q, r, s;
  int64_t stride_h, stride_w, top, left;
  int64_t lanes;  // channels of a pixel, also its stride
};

template <typename T>
struct VectorKernels {
  // mean and sum of squared deviations of each channel, computed around the first pixel (one pass,
  // no cancellation).
  void (*moments)(const T* x, Plane plane, float* mean, float* m2);
  // y = x * scale + shift [+ residual], with `relu` between 0 and top
  void (*normalize)(const T* x, const T* residual, T* y, Plane plane, const float* scale,
                    const float* shift, bool relu, float top);
  // g = masked dy [+ dy2]; sum_g += …: sums of g and of g * (x - mean); g is stored where
  // masked_dy is not null, which dy2 demands. Pixels of dy lie dy_stride apart, here and below.
  void (*backward_sums)(const T* dy, int64_t dy_stride, const T* dy2, const T* x, ReluMask<T> mask,
                        const float* mean, Plane plane, float* sum_g, float* sum_gx, T* masked_dy);
  // dx = a * (g - k1 - (x - mean) * k2) [+ addend]
  void (*backward_data)(const T* dy, int64_t dy_stride, const T* x, ReluMask<T> mask,
                        const float* mean, const float* a, const float* k1, const float* k2,
                        const T* addend, Plane plane, T* dx);
  void (*relu)(const T* x, T* y, int64_t count, float ceiling);  // ceiling 0: none
  void (*relu_backward)(const T* dy, const T* y, T* dx, int64_t count, float ceiling);
  // relu6(x + 3) * factor, with `swish` times x (op.h).
  void (*hard)(const T* x, T* y, int64_t count, bool swish, float factor);
  void (*hard_backward)(const T* dy, const T* x, T* dx, int64_t count, bool swish, float factor);
  void (*add)(const T* a, const T* b, T* sum, int64_t count);
  void (*scale)(const T* x, T* y, int64_t count, float factor);
  // y = a + factor * b
  void (*scaled_add)(const T* a, const T* b, T* y, int64_t count, float factor);
  // dw (r, s, lanes) = sums of x * dy over one image; overwritten.
  void (*depthwise_filter)(const T* x, const T* dy, const DepthwiseWindow& window, float* dw);
  // The plane's lanes from pixels that lie from_stride apart.
  void (*copy_lanes)(const T* from, int64_t from_stride, T* to, Plane plane);
  // y = x * scale where the uniform of word (first + i) is below keep, else 0.
  void (*dropout)(const T* x, T* y, int64_t count, const DropoutWords& words);
  // One pixel's channels: y_c = x_c * s_c^-beta, s_c = bias + alpha * sum of squares around c.
  void (*lrn)(const T* x, T* y, Plane plane, int64_t radius, float bias, float alpha, float beta);
  void (*lrn_backward)(const T* dy, const T* x, T* dx, Plane plane, int64_t radius, float bias,
                       float alpha, float beta);
};

template <typename T>
const VectorKernels<T>& Vectors();

}  // namespace carole::onednn
