// Bias, ReLU and their gradients, for convolutions and fully connected layers whose library does
// not fuse them. Tensors are matrices (rows, columns) of fp32 or 16-bit elements of type `type`, in
// device memory; columns are channels. Biases and their gradients are fp32. All functions enqueue
// their work in `stream`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/core/dtype.h"

struct CUstream_st;

namespace carole::cuda {

// Computes y = [relu](y + bias + residual). bias and residual may be nullptr. residual has the type
// of y.
void AddBiasRelu(CUstream_st* stream, DType type, void* y, const float* bias, const void* residual,
                 int64_t rows, int64_t columns, bool relu);

// Computes db = column sums of dy. `workspace` has ColumnSumsBytes() bytes.
size_t ColumnSumsBytes(DType type, int64_t rows, int64_t columns);
void ColumnSums(CUstream_st* stream, DType type, const void* dy, int64_t rows, int64_t columns,
                float* db, std::byte* workspace);

// Sets dx to 0 unless y is above 0. y is the output of a ReLU and has the type of dx. Unless db is
// nullptr, also computes db = column sums of the masked dx. `workspace` has ColumnSumsBytes()
// bytes; it may be nullptr if db is.
void MaskGradient(CUstream_st* stream, DType type, void* dx, const void* y, int64_t rows,
                  int64_t columns, float* db, std::byte* workspace);

}  // namespace carole::cuda
