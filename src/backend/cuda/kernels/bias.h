// What convolutions and fully connected layers do with their bias and ReLU, over a matrix (rows,
// columns) of fp32 or 16-bit elements. Biases and their gradients are fp32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/core/dtype.h"

struct CUstream_st;

namespace carole::cuda {

// y = [relu](y + bias + residual); bias and residual, which has y's type, may be nullptr.
void AddBiasRelu(CUstream_st* stream, DType type, void* y, const float* bias, const void* residual,
                 int64_t rows, int64_t columns, bool relu);

// db = column sums of dy; workspace of ColumnSumsBytes.
size_t ColumnSumsBytes(DType type, int64_t rows, int64_t columns);
void ColumnSums(CUstream_st* stream, DType type, const void* dy, int64_t rows, int64_t columns,
                float* db, std::byte* workspace);

// dx = 0 where a ReLU's y, of dx's type, is not above; db, unless it is nullptr, as above of dx.
void MaskGradient(CUstream_st* stream, DType type, void* dx, const void* y, int64_t rows,
                  int64_t columns, float* db, std::byte* workspace);

}  // namespace carole::cuda
