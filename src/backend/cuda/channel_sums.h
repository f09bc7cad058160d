// Sums over the pixels of each channel, in an order that the shapes alone decide.
#pragma once

#include "src/backend/cuda/launch.h"

namespace carole::cuda {

// The parts of the sums that the blocks of one grid made: kValues x splits x channels numbers.
struct PartialSums {
  double* data = nullptr;
  int64_t splits = 0, channels = 0;

  __device__ double& At(int value, int64_t split, int64_t channel) const {
    return data[(value * splits + split) * channels + channel];
  }
  __device__ double Total(int value, int64_t channel) const {
    double sum = 0;
    for (int64_t split = 0; split < splits; ++split) sum += At(value, split, channel);
    return sum;
  }
};

inline constexpr int64_t kSumGrid = 1024;  // fewer blocks than elsewhere: each leaves a part behind

inline int64_t SumSplits(int64_t pixels, int64_t channels) {
  const int64_t blocks = PixelBlocks(pixels, channels, kSumGrid);
  return blocks < 64 ? blocks : 64;
}

template <int kValues>
size_t PartialSumsBytes(int64_t pixels, int64_t channels) {
  return sizeof(double) * kValues * SumSplits(pixels, channels) * channels;
}

// f.Pixels() is the number of pixels that count; f.Add(column, pixel, sums) adds to float sums,
// which go into doubles every few pixels.
template <int kValues, typename F>
__global__ void __launch_bounds__(kThreads) ChannelSumsKernel(PartialSums partial, F f) {
  constexpr int kFlush = 32;
  __shared__ double parts[kRows][kLanes];
  const MatrixPlace at;
  const int lane = threadIdx.x % kLanes, row = threadIdx.x / kLanes;
  double totals[kValues] = {};
  if (at.channel < partial.channels) {
    const int64_t pixels = f.Pixels();
    const auto column = f.Column(at.channel);
    for (int64_t pixel = at.first; pixel < pixels;) {
      float sums[kValues] = {};
      for (int i = 0; i < kFlush && pixel < pixels; ++i, pixel += at.step)
        f.Add(column, pixel, sums);
      for (int v = 0; v < kValues; ++v) totals[v] += sums[v];
    }
  }
  for (int v = 0; v < kValues; ++v) {
    parts[row][lane] = totals[v];
    __syncthreads();
    if (row == 0 && at.channel < partial.channels) {
      double sum = 0;
      for (int r = 0; r < kRows; ++r) sum += parts[r][lane];
      partial.At(v, blockIdx.y, at.channel) = sum;
    }
    __syncthreads();
  }
}

// Leaves the parts in `workspace` (PartialSumsBytes<kValues>(pixels, channels) bytes).
template <int kValues, typename F>
PartialSums ChannelSums(cudaStream_t stream, int64_t pixels, int64_t channels, std::byte* workspace,
                        F f) {
  const PartialSums partial{.data = reinterpret_cast<double*>(workspace),
                            .splits = SumSplits(pixels, channels),
                            .channels = channels};
  Launch(stream,
         dim3(static_cast<unsigned>(DivideUp(channels, kLanes)),
              static_cast<unsigned>(partial.splits)),
         ChannelSumsKernel<kValues, F>, partial, f);
  return partial;
}

// to[i] = the total of the first value of channel i.
inline void WriteTotals(cudaStream_t stream, const PartialSums& sums, float* to) {
  ForEach(stream, sums.channels,
          [=] __device__(int64_t i) { to[i] = static_cast<float>(sums.Total(0, i)); });
}

}  // namespace carole::cuda
