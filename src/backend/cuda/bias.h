// What convolutions and fully connected layers do with their bias, over a matrix (rows, columns).
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace carole::cuda {

// y = [relu](y + bias); bias may be nullptr.
void AddBiasRelu(CUstream_st* stream, float* y, const float* bias, int64_t rows, int64_t columns,
                 bool relu);

// db = column sums of dy; workspace of ColumnSumsBytes.
size_t ColumnSumsBytes(int64_t rows, int64_t columns);
void ColumnSums(CUstream_st* stream, const float* dy, int64_t rows, int64_t columns, float* db,
                std::byte* workspace);

}  // namespace carole::cuda
