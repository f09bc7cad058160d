#include "src/backend/cuda/bias.h"
#include "src/backend/cuda/channel_sums.h"

namespace carole::cuda {
namespace {

struct BiasRelu {
  float* y;
  const float* bias;
  int64_t columns;
  bool relu;

  struct BiasColumn {
    int64_t column;
    float bias;
  };
  __device__ BiasColumn Column(int64_t column) const {
    return {column, bias == nullptr ? 0 : bias[column]};
  }
  __device__ void operator()(const BiasColumn& at, int64_t row) const {
    float& element = y[row * columns + at.column];
    const float value = element + at.bias;
    element = relu && value < 0 ? 0 : value;  // NaN stays NaN
  }
};

struct Rows {
  const float* dy;
  int64_t rows, columns;

  __device__ int64_t Pixels() const { return rows; }
  __device__ int64_t Column(int64_t column) const { return column; }
  __device__ void Add(int64_t column, int64_t row, float* sums) const {
    sums[0] += dy[row * columns + column];
  }
};

}  // namespace

void AddBiasRelu(cudaStream_t stream, float* y, const float* bias, int64_t rows, int64_t columns,
                 bool relu) {
  if (bias == nullptr && !relu) return;
  ForMatrix(stream, rows, columns, BiasRelu{y, bias, columns, relu});
}

size_t ColumnSumsBytes(int64_t rows, int64_t columns) { return PartialSumsBytes<1>(rows, columns); }

void ColumnSums(cudaStream_t stream, const float* dy, int64_t rows, int64_t columns, float* db,
                std::byte* workspace) {
  WriteTotals(stream, ChannelSums<1>(stream, rows, columns, workspace, Rows{dy, rows, columns}),
              db);
}

}  // namespace carole::cuda
