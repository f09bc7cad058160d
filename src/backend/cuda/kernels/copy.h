// Copies images, filters and biases into the shapes that cuDNN needs, and gradients back
// (convolution/conv2d.cpp). All functions enqueue their work in `stream`. All tensors lie in device
// memory.
#pragma once

#include "src/backend/ops/op.h"
#include "src/backend/ops/window.h"

struct CUstream_st;

namespace carole::cuda {

// Copies x (N,C,H,W) to y (N,D,P,Q), adding a border of zeros and channels of zeros. Negative
// amounts of `padding` crop. Both tensors are NHWC, with elements of 2 or 4 bytes.
// D is C or 4; for elements of 2 bytes it may also be 8.
void Pad(CUstream_st* stream, DType type, const void* x, const Shape& x_shape,
         const Padding& padding, void* y, const Shape& y_shape);

// Casts a filter `from` (K,D,R,S) of bf16, fp16 or fp32 to fp32, and drops the channels after
// channel C: to (K,C,R,S). Both lie (K,R,S,C) in memory. If both have the same number of elements,
// their shapes may differ.
void CastFilter(CUstream_st* stream, DType from_type, const void* from, const Shape& from_shape,
                float* to, const Shape& to_shape);

// The geometry of a space-to-depth transform. A block of `rows` x `columns` pixels of an image
// becomes one pixel that holds the channels of all of them, row by row, followed by zeros. A
// stride of 2 becomes a stride of 1, and tensor cores get as many channels as they need.
//
// With outputs = 2, two neighboring outputs of a row also become one pixel, with twice the channels
// (in NHWC memory they already lie so). A block then spans the pixels of two strides.
struct PixelBlock {
  int rows = 1, columns = 1;  // in pixels; columns is 2 or 4, or 1 if pixels stay as they are
  int outputs = 1;            // 1 or 2

  // The distance in pixels from one output to the next.
  constexpr int stride() const { return columns > 1 ? columns / outputs : 1; }
};

// Writes the pixel blocks of x (N,C,H,W), with a border of `padding`, to y (N,D,P,Q). Blocks start
// at the first row and column of the border. The part of y beyond the image is zero. Both tensors
// are NHWC, with elements of 2 bytes. C is at most 4. D is a multiple of 8, at least
// C * rows * columns.
void SpaceToDepth(CUstream_st* stream, const void* x, const Shape& x_shape, const Padding& padding,
                  const PixelBlock& pixel_block, void* y, const Shape& y_shape);

// Makes the filter that, applied to pixel blocks, gives the same result as w (K,C,R,S) applied to
// pixels. The result has the shape (outputs*K,D,P,Q). P = R / rows and
// Q = (S + (outputs - 1) * stride) / columns are rounded up. The K filters of the first output come
// first.
void FilterToDepth(CUstream_st* stream, const void* w, const Shape& w_shape,
                   const PixelBlock& pixel_block, void* to, const Shape& to_shape);

// Makes the filter that computes two neighboring outputs of a row at once, for a convolution of
// stride 1 whose pixels stay as they are. It turns w (K,C,R,S) into (2*K,D,R,S+1). Elements have 2
// bytes. D is C or 8, as in Pad().
void FilterToPairs(CUstream_st* stream, DType type, const void* w, const Shape& w_shape, void* to,
                   const Shape& to_shape);

// Computes the gradient of w (K,C,R,S) from `from`, the gradient of the filter that FilterToDepth()
// made, in bf16 or fp16.
void CastFilterFromDepth(CUstream_st* stream, DType from_type, const void* from,
                         const Shape& from_shape, const PixelBlock& pixel_block, float* w,
                         const Shape& w_shape);

// Writes `times` copies of the `count` values of `from` to `to`, rounded to `to_type`.
void RepeatBias(CUstream_st* stream, const float* from, int64_t count, int times, DType to_type,
                void* to);

}  // namespace carole::cuda
