// AddBiasRelu() and ColumnSums(); MaskGradient() is in elementwise.cu.
#include "src/backend/cuda/kernels/bias.h"
#include "src/backend/cuda/kernels/channel_sums.h"

namespace carole::cuda {
namespace {

template <typename T, int N>
struct BiasRelu {
  static constexpr int kReadsInFlight = 4;
  T* y;
  const float* bias;
  const T* residual;
  int64_t columns;
  bool relu;

  struct BiasColumns {
    int64_t first;
    Floats<N> bias;
  };
  __device__ BiasColumns Column(int64_t first) const {
    return {first, bias == nullptr ? Floats<N>{} : Load<N>(bias + first)};
  }
  struct Packs {
    Pack<T, N> y, residual;
  };
  __device__ Packs Read(const BiasColumns& at, int64_t row) const {
    const int64_t index = row * columns + at.first;
    return {ReadPack<N>(y + index),
            residual == nullptr ? Pack<T, N>{} : ReadPack<N>(residual + index)};
  }
  __device__ void Write(const BiasColumns& at, int64_t row, const Packs& read) const {
    Floats<N> values = ToFloats(read.y);
    const Floats<N> residuals = ToFloats(read.residual);
    for (int i = 0; i < N; ++i) {
      const float value = values[i] + at.bias[i] + residuals[i];
      values[i] = relu && value < 0 ? 0 : value;  // NaN stays NaN
    }
    Store<N>(y + row * columns + at.first, values);
  }
};

template <typename T, int N>
struct Rows {
  static constexpr int kReadsInFlight = 4;
  const T* dy;
  int64_t rows, columns;

  __device__ int64_t Pixels() const { return rows; }
  __device__ int64_t Column(int64_t column) const { return column; }
  __device__ Pack<T, N> Read(int64_t column, int64_t row) const {
    return ReadPack<N>(dy + row * columns + column);
  }
  __device__ void Add(int64_t, int64_t, const Pack<T, N>& read, Floats<N>* sums) const {
    const Floats<N> values = ToFloats(read);
    for (int i = 0; i < N; ++i) sums[0][i] += values[i];
  }
};

}  // namespace

void AddBiasRelu(cudaStream_t stream, DType type, void* y, const float* bias, const void* residual,
                 int64_t rows, int64_t columns, bool relu) {
  if (bias == nullptr && residual == nullptr && !relu) return;
  WithPacks(type, columns, [&]<typename T, int N>() {
    ForMatrix<N>(
        stream, rows, columns,
        BiasRelu<T, N>{static_cast<T*>(y), bias, static_cast<const T*>(residual), columns, relu});
  });
}

size_t ColumnSumsBytes(DType type, int64_t rows, int64_t columns) {
  return WithPacks(type, columns,
                   [&]<typename T, int N>() { return PartialSumsBytes<1, N>(rows, columns); });
}

void ColumnSums(cudaStream_t stream, DType type, const void* dy, int64_t rows, int64_t columns,
                float* db, std::byte* workspace) {
  WithPacks(type, columns, [&]<typename T, int N>() {
    const Rows<T, N> matrix{static_cast<const T*>(dy), rows, columns};
    ChannelSums<1, N>(stream, rows, columns, workspace, matrix, WriteSum<float>{db});
  });
}

}  // namespace carole::cuda
