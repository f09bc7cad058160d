#include "src/backend/reference/math/bias.h"

#include "src/backend/reference/math/loops.h"

namespace carole::reference {

template <typename T>
void AddBiasRelu(int threads, T* y, const T* bias, const T* residual, int64_t rows, int64_t columns,
                 bool relu) {
  if (bias == nullptr && residual == nullptr && !relu) return;
  ForIndices(threads, rows, [&](int64_t i) {
    T* row = y + i * columns;
    if (bias != nullptr) {
      for (int64_t k = 0; k < columns; ++k) row[k] += bias[k];
    }
    if (residual != nullptr) {
      for (int64_t k = 0; k < columns; ++k) row[k] += residual[i * columns + k];
    }
    if (relu) {
      for (int64_t k = 0; k < columns; ++k) row[k] = row[k] < T{0} ? T{0} : row[k];
    }
  });
}

template <typename T>
void ColumnSums(int threads, const T* dy, int64_t rows, int64_t columns, T* sums) {
  ForRanges(threads, columns, kChannelGrain, [&](int64_t begin, int64_t end) {
    double total[kChannelGrain] = {};
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = begin; k < end; ++k) total[k - begin] += dy[i * columns + k];
    }
    for (int64_t k = begin; k < end; ++k) sums[k] = static_cast<T>(total[k - begin]);
  });
}

template void AddBiasRelu(int, float*, const float*, const float*, int64_t, int64_t, bool);
template void AddBiasRelu(int, double*, const double*, const double*, int64_t, int64_t, bool);
template void ColumnSums(int, const float*, int64_t, int64_t, float*);
template void ColumnSums(int, const double*, int64_t, int64_t, double*);

}  // namespace carole::reference
