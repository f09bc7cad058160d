// Biases of convolutions and fully connected layers.
#pragma once

#include <cstdint>

namespace carole::reference {

// y (rows, columns) += bias (columns) + residual (rows, columns); each may be null. Then applies
// the ReLU to y if `relu` is set.
template <typename T>
void AddBiasRelu(int threads, T* y, const T* bias, const T* residual, int64_t rows, int64_t columns,
                 bool relu);

// sums (columns) = column sums of dy (rows, columns), accumulated in double.
template <typename T>
void ColumnSums(int threads, const T* dy, int64_t rows, int64_t columns, T* sums);

}  // namespace carole::reference
