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

}  // namespace carole::cuda
