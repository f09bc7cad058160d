// What convolutions and fully connected layers do with their bias.
#pragma once

#include <cstdint>

namespace carole::reference {

// y (rows, columns) += bias (columns) and residual (as y), where they are there; then the ReLU,
// where it is asked for.
template <typename T>
void AddBiasRelu(int threads, T* y, const T* bias, const T* residual, int64_t rows, int64_t columns,
                 bool relu);

// sums (columns) = column sums of dy (rows, columns), added up in double.
template <typename T>
void ColumnSums(int threads, const T* dy, int64_t rows, int64_t columns, T* sums);

}  // namespace carole::reference
