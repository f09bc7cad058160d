// Copies of activations, for kernels whose library wants them otherwise.
#pragma once

#include "src/backend/op.h"

struct CUstream_st;

namespace carole::cuda {

// y (N,D,P,Q) = x (N,C,H,W) with `padding` around it, negative amounts cut off, and with zeros for
// channels that x has not; both NHWC, of elements of 2 or 4 bytes; D = C, or 4, or 8 of 2 bytes.
void Pad(CUstream_st* stream, DType type, const void* x, const Shape& x_shape,
         const Padding& padding, void* y, const Shape& y_shape);

// to (K,C,R,S) = `from` (K,D,R,S), of bf16, fp16 or fp32, without the channels that `to` has not;
// both (K,R,S,C) in memory. Shapes of one size need not be alike.
void CastFilter(CUstream_st* stream, DType from_type, const void* from, const Shape& from_shape,
                float* to, const Shape& to_shape);

// Space to depth: a block of an image's pixels becomes one pixel with the channels of them all, row
// by row, then zeros. So a stride of 2 becomes one of 1, and tensor cores get as many channels as
// they take. Where two outputs of a row become one pixel, too, of twice the channels (which they
// are in memory), a block spans the pixels of two strides.
struct Blocks {
  int rows = 1, columns = 1;  // pixels; columns: 2 or 4, or 1 where pixels stay what they are
  int outputs = 1;            // 1 or 2

  // Of pixels, from output to output.
  constexpr int stride() const { return columns > 1 ? columns / outputs : 1; }
};

// y (N,D,P,Q) = the blocks of x (N,C,H,W), C at most 4, with `padding` around it, from the first
// row and column on; what of y lies beyond is zero. Both NHWC, of elements of 2 bytes; D >= C *
// rows * columns is a multiple of 8.
void SpaceToDepth(CUstream_st* stream, const void* x, const Shape& x_shape, const Padding& padding,
                  const Blocks& blocks, void* y, const Shape& y_shape);

// The filter to (outputs*K,D,P,Q) that does to blocks what w (K,C,R,S) does to pixels, P = R /
// rows, Q = (S + (outputs - 1) * stride) / columns, rounded up; first all those of the first
// output.
void FilterToDepth(CUstream_st* stream, const void* w, const Shape& w_shape, const Blocks& blocks,
                   void* to, const Shape& to_shape);

// The filter to (2*K,D,R,S+1) that does w's (K,C,R,S) work for two outputs of a row, where pixels
// stay what they are and the stride was 1; of elements of 2 bytes. D = C or 8, as in Pad().
void FilterToPairs(CUstream_st* stream, DType type, const void* w, const Shape& w_shape, void* to,
                   const Shape& to_shape);

// The gradient of w (K,C,R,S) that follows from that of the filter of blocks, of bf16 or fp16.
void CastFilterFromDepth(CUstream_st* stream, DType from_type, const void* from,
                         const Shape& from_shape, const Blocks& blocks, float* w,
                         const Shape& w_shape);

// to = so many times `from`, rounded to the type.
void RepeatBias(CUstream_st* stream, const float* from, int64_t count, int times, DType to_type,
                void* to);

}  // namespace carole::cuda
