// Sums over the pixels of each channel, in an order that the shapes alone decide.
#pragma once

#include "src/backend/cuda/element.h"
#include "src/backend/cuda/launch.h"

namespace carole::cuda {

// kValues x splits x channels numbers: the parts that the blocks of one grid made, and once they
// are added up, the sums in the place of the first ones.
struct PartialSums {
  double* data = nullptr;
  int64_t splits = 0, channels = 0;

  __device__ double& At(int value, int64_t split, int64_t channel) const {
    return data[(value * splits + split) * channels + channel];
  }
  __device__ double Total(int value, int64_t channel) const { return At(value, 0, channel); }
};

inline constexpr int64_t kSumGrid = 1024;  // fewer blocks than elsewhere: each leaves a part behind

inline int64_t SumSplits(int64_t pixels, int64_t columns) {
  const int64_t blocks = PixelBlocks(pixels, columns, kSumGrid);
  return blocks < 512 ? blocks : 512;
}

template <int kValues, int N>
size_t PartialSumsBytes(int64_t pixels, int64_t channels) {
  return sizeof(double) * kValues * SumSplits(pixels, channels / N) * channels;
}

// For each of the threads' kCount values and each lane: put(value, lane, sum) with the sum over the
// threads that stand `lanes` apart.
template <int kCount, typename F>
__device__ void SumLanes(const double* values, unsigned lanes, F put) {
  __shared__ double parts[kCount][kThreads];
  for (int i = 0; i < kCount; ++i) parts[i][threadIdx.x] = values[i];
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kCount * lanes; i += kThreads) {
    const unsigned value = i / lanes, lane = i % lanes;
    double sum = 0;
    for (unsigned thread = lane; thread < kThreads; thread += lanes) sum += parts[value][thread];
    put(value, lane, sum);
  }
}

// f.Pixels() is the number of pixels that count; f.Add(column, pixel, sums) adds to float sums,
// N of each value, which go into doubles every few pixels.
template <int kValues, int N, typename F>
__global__ void __launch_bounds__(kThreads)
    ChannelSumsKernel(PartialSums partial, unsigned lanes, F f) {
  constexpr int kFlush = 32;
  const MatrixPlace at(lanes);
  const int64_t channel = at.column * N;
  double totals[kValues * N] = {};
  if (channel < partial.channels) {
    const int64_t pixels = f.Pixels();
    const auto column = f.Column(channel);
    for (int64_t pixel = at.first; pixel < pixels;) {
      Floats<N> sums[kValues] = {};
      for (int i = 0; i < kFlush && pixel < pixels; ++i, pixel += at.step)
        f.Add(column, pixel, sums);
      for (int i = 0; i < kValues * N; ++i) totals[i] += sums[i / N][i % N];
    }
  }
  SumLanes<kValues * N>(totals, lanes, [&](unsigned i, unsigned lane, double sum) {
    const int64_t to = (int64_t{blockIdx.x} * lanes + lane) * N + i % N;
    if (to < partial.channels) partial.At(i / N, blockIdx.y, to) = sum;
  });
}

// One block for each kMostLanes channels.
template <int kValues>
__global__ void __launch_bounds__(kThreads) AddPartsKernel(PartialSums partial) {
  const MatrixPlace at(kMostLanes);
  double totals[kValues] = {};
  if (at.column < partial.channels) {
    for (int64_t split = at.first; split < partial.splits; split += at.step) {
      for (int v = 0; v < kValues; ++v) totals[v] += partial.At(v, split, at.column);
    }
  }
  SumLanes<kValues>(totals, kMostLanes, [&](unsigned v, unsigned lane, double sum) {
    const int64_t channel = int64_t{blockIdx.x} * kMostLanes + lane;
    if (channel < partial.channels) partial.At(v, 0, channel) = sum;
  });
}

// Of `channels` channels, N at once. Leaves the sums in `workspace` (PartialSumsBytes<kValues, N>
// of them).
template <int kValues, int N, typename F>
PartialSums ChannelSums(cudaStream_t stream, int64_t pixels, int64_t channels, std::byte* workspace,
                        F f) {
  const int64_t columns = channels / N;
  const PartialSums partial{.data = reinterpret_cast<double*>(workspace),
                            .splits = SumSplits(pixels, columns),
                            .channels = channels};
  Launch(stream, MatrixGrid(columns, partial.splits), ChannelSumsKernel<kValues, N, F>, partial,
         Lanes(columns), f);
  if (partial.splits > 1) Launch(stream, MatrixGrid(channels, 1), AddPartsKernel<kValues>, partial);
  return partial;
}

// to[i] = the total of the first value of channel i.
inline void WriteTotals(cudaStream_t stream, const PartialSums& sums, float* to) {
  ForEach(stream, sums.channels,
          [=] __device__(int64_t i) { to[i] = static_cast<float>(sums.Total(0, i)); });
}

}  // namespace carole::cuda
