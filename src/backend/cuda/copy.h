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

// Space to depth. A block of 2x2 pixels of an image with at most 4 channels becomes a pixel with
// kBlockChannels: those of its pixels row by row, then zeros. So a stride of 2 becomes one of 1,
// and tensor cores get as many channels as they take.
inline constexpr int64_t kBlockChannels = 16;

// y (N,kBlockChannels,P,Q) = the blocks of x (N,C,H,W) with `padding` around it, from the first row
// and column on; what of y lies beyond is zero. Both NHWC, of elements of 2 bytes.
void SpaceToDepth(CUstream_st* stream, const void* x, const Shape& x_shape, const Padding& padding,
                  void* y, const Shape& y_shape);

// Its reverse: to (K,C,R,S) = `from` (K,kBlockChannels,(R+1)/2,(S+1)/2) of bf16 or fp16.
void CastFilterFromDepth(CUstream_st* stream, DType from_type, const void* from, float* to,
                         const Shape& to_shape);

}  // namespace carole::cuda
