// Zeros around an image, or pixels cut off.
#pragma once

#include "src/backend/op.h"

struct CUstream_st;

namespace carole::cuda {

// y (N,C,P,Q) = x (N,C,H,W) with `padding` around it, negative amounts cut off; both NHWC.
void Pad(CUstream_st* stream, const float* x, const Shape& x_shape, const Padding& padding,
         float* y, const Shape& y_shape);

}  // namespace carole::cuda
