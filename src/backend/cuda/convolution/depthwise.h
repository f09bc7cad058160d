// Geometry and epilogues that all kernels of depthwise convolutions share. Private to
// src/backend/cuda.
#pragma once

#include "src/backend/conv2d_geometry.h"
#include "src/backend/cuda/kernels/element.h"
#include "src/core/check.h"

namespace carole::cuda {

// A Conv2dGeometry in 32 bits: kernels compute with all of it for every tap.
struct DepthwiseGeometry {
  int c, h, w, k, p, q, r, s, stride_h, stride_w, top, left, dilation;

  explicit DepthwiseGeometry(const Conv2dGeometry& g)
      : c(Narrow(g.c)),
        h(Narrow(g.h)),
        w(Narrow(g.w)),
        k(Narrow(g.k)),
        p(Narrow(g.p)),
        q(Narrow(g.q)),
        r(Narrow(g.r)),
        s(Narrow(g.s)),
        stride_h(Narrow(g.a.stride_h)),
        stride_w(Narrow(g.a.stride_w)),
        top(Narrow(g.a.padding.top)),
        left(Narrow(g.a.padding.left)),
        dilation(Narrow(g.a.dilation)) {}

  __device__ int multiplier() const { return k == c ? 1 : k / c; }
  // The row or column of x that a tap reads for an output pixel, or -1 if there is none.
  __device__ int InputRow(int row, int i) const {
    return Inside(row * stride_h + i * dilation - top, h);
  }
  __device__ int InputColumn(int column, int j) const {
    return Inside(column * stride_w + j * dilation - left, w);
  }
  // The row or column of y that reads this row or column of x through a tap, or -1 if there is
  // none.
  __device__ int OutputRow(int y, int i) const {
    return Output(y + top - i * dilation, stride_h, p);
  }
  __device__ int OutputColumn(int x, int j) const {
    return Output(x + left - j * dilation, stride_w, q);
  }

 private:
  __device__ static int Inside(int position, int size) {
    return position >= 0 && position < size ? position : -1;
  }
  __device__ static int Output(int shifted, int stride, int size) {
    const int position = shifted / stride;
    return shifted >= 0 && position * stride == shifted ? Inside(position, size) : -1;
  }
  // Limits sizes to 16 bits, so that the product of two has 32 bits.
  static int Narrow(int64_t number) {
    CAROLE_CHECK(number >= INT16_MIN && number <= INT16_MAX,
                 "depthwise convolution: got a size of {}, want 16 bits", number);
    return static_cast<int>(number);
  }
};

// sums += a * b
template <int N>
__device__ void AddProducts(Floats<N>& sums, const Floats<N>& a, const Floats<N>& b) {
  for (int n = 0; n < N; ++n) sums[n] += a[n] * b[n];
}

// The epilogue of the forward pass, for the sums of N channels from k on:
// [relu](sums + bias + residual).
template <typename T, int N>
struct ForwardEpilogue {
  const float* bias;  // may be null
  const T* residual;  // may be null
  bool relu;

  __device__ Floats<N> Bias(int k) const {
    return bias == nullptr ? Floats<N>{} : Load<N>(bias + k);
  }
  __device__ Floats<N> operator()(Floats<N> sums, const Floats<N>& biases, int64_t element) const {
    if (bias == nullptr && residual == nullptr && !relu) return sums;
    for (int n = 0; n < N; ++n) sums[n] += biases[n];
    if (residual != nullptr) {
      const Floats<N> residuals = Load<N>(residual + element);
      for (int n = 0; n < N; ++n) sums[n] += residuals[n];
    }
    for (int n = 0; n < N; ++n) sums[n] = relu && sums[n] < 0 ? 0 : sums[n];  // NaN stays NaN
    return sums;
  }
};

// The epilogue of the data gradient: sets sums to 0 where y of a ReLU is 0.
template <typename T, int N>
struct MaskEpilogue {
  const T* relu_y;  // may be null: there is no mask

  __device__ Floats<N> Bias(int) const { return {}; }
  __device__ Floats<N> operator()(Floats<N> sums, const Floats<N>&, int64_t element) const {
    if (relu_y == nullptr) return sums;
    const Floats<N> results = Load<N>(relu_y + element);
    for (int n = 0; n < N; ++n) sums[n] = results[n] > 0 ? sums[n] : 0;
    return sums;
  }
};

}  // namespace carole::cuda
