// Copies of activations, for kernels whose library wants them otherwise.
#pragma once

#include "src/backend/op.h"

struct CUstream_st;

namespace carole::cuda {

// y (N,C,P,Q) = x (N,C,H,W) with `padding` around it, negative amounts cut off; both NHWC, of
// elements of 2 or 4 bytes.
void Pad(CUstream_st* stream, DType type, const void* x, const Shape& x_shape,
         const Padding& padding, void* y, const Shape& y_shape);

// to[i] = from[i], which are bf16, fp16 or fp32.
void Cast(CUstream_st* stream, DType from_type, const void* from, float* to, int64_t count);

}  // namespace carole::cuda
