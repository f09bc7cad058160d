// What batch normalization's forward and backward kernels share. Private to the folder.
//
// Three passes: sums over the pixels of each channel, numbers for each channel, then each element,
// the last ones first: those the cache still holds. ReLU and residual are part of the passes over
// elements. Where the statistics are those of all ranks, the sums go to them between the first two
// passes.
#pragma once

#include <type_traits>

#include "src/backend/cuda/kernels/channel_sums.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/tensor/buffer.h"

namespace carole::cuda {

// The rows of the matrix (pixels, channels) that have a part in the statistics; how many images are
// valid is only known on the device.
struct CountedPixels {
  const RunNumbers* numbers;
  int64_t images, each;

  CountedPixels(const Shape& x, const RunNumbers* numbers)
      : numbers(numbers), images(x[0]), each(x.rank() == 4 ? x[2] * x[3] : 1) {}
  __host__ __device__ int64_t all() const { return images * each; }
  __device__ int64_t Count() const {
    const int64_t rows = numbers->valid_rows;
    return (rows == 0 ? images : rows == RunContext::kNoRows ? 0 : rows) * each;
  }
  // The pixel that is the i-th to be worked on where the last come first.
  __device__ int64_t FromTheEnd(int64_t i) const { return all() - 1 - i; }
};

// The ReLU behind the normalization, if there is one.
struct Relu {
  bool present;
  float top;

  explicit Relu(const BatchNormAttributes& a)
      : present(a.relu), top(static_cast<float>(ReluTop(a.ceiling))) {}
  __device__ float operator()(float value) const { return present ? Clamp(value, 0, top) : value; }
  // Whether a gradient comes through it where y, before or behind it, is this.
  __device__ bool Passes(float y) const { return y > 0 && y < top; }
};

// Bits of what is above 0, see BatchNormAttributes. Those of a pack are read and written at once.
template <int N>
struct Passed {
  static constexpr int kBits = BatchNormAttributes::kReluBitmaskBits;
  using Bits = std::conditional_t<(N > kBits), uint16_t, uint8_t>;
  uint8_t* bytes = nullptr;

  // Of element i of a pack, which has a byte for each kBits of them.
  __device__ static Bits Mask(int i) {
    return static_cast<Bits>(1U << (i / kBits * 8 + i % kBits));
  }
  __device__ Bits& At(int64_t element) const {
    return *reinterpret_cast<Bits*>(bytes + element / kBits);
  }
  __device__ void Put(int64_t element, const Floats<N>& values) const {
    unsigned bits = 0;
    for (int i = 0; i < N; ++i) bits |= values[i] > 0 ? Mask(i) : 0U;
    At(element) = static_cast<Bits>(bits);
  }
};

// Of one channel: two sums over pixels, and how many pixels.
struct TwoSums {
  double first, second, count;
};

// Those of all channels as ranks sum them: first ones, second ones, count.
struct RankMessage {
  double* values = nullptr;
  int64_t channels = 0;

  static size_t Bytes(int64_t channels) { return sizeof(double) * (2 * channels + 1); }

  __device__ void Put(int64_t c, const TwoSums& sums) const {
    values[c] = sums.first;
    values[channels + c] = sums.second;
    if (c == 0) values[2 * channels] = sums.count;
  }
  // In the order of the stream.
  void SumOverRanks(const RunContext& context) const {
    context.sum_over_ranks({values, static_cast<size_t>(2 * channels + 1)});
  }
  __device__ TwoSums At(int64_t c) const {
    return {values[c], values[channels + c], values[2 * channels]};
  }
};

// What N channels need. Forward and backward calculate alike, bit by bit, so that backward finds
// the ReLU's mask again.
template <int N>
struct Columns {
  int64_t channel;
  Floats<N> mean, scale, beta;

  __device__ float Normalize(float x, int i) const { return fmaf(x - mean[i], scale[i], beta[i]); }
};

struct Channels {
  const float *mean, *rstd, *gamma, *beta;

  template <int N>
  __device__ Columns<N> At(int64_t channel) const {
    Columns<N> columns{channel, Load<N>(mean + channel), Load<N>(rstd + channel), {}};
    if (beta != nullptr) columns.beta = Load<N>(beta + channel);
    if (gamma == nullptr) return columns;
    const Floats<N> factors = Load<N>(gamma + channel);
    for (int i = 0; i < N; ++i) columns.scale[i] = factors[i] * columns.scale[i];
    return columns;
  }
};

}  // namespace carole::cuda
