// Sums over the pixels of each channel. The order of additions depends on the shapes only, so
// results have the same bits in every run. A first kernel writes partial sums, one set for each
// block of threads; a second kernel adds them.
#pragma once

#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"

namespace carole::cuda {

// Returns the partition for sums. It has fewer and larger blocks than other kernels, since each
// block writes a set of partial sums.
inline MatrixPartition PartitionForSums(int64_t pixels, int64_t columns) {
  constexpr int64_t kBlocks = 1024, kLeastPixels = 8;
  return {pixels, columns, kBlocks, kLeastPixels};
}

// The partial sums of all blocks: doubles (values, splits, channels). A split is a block of pixels.
struct PartialSums {
  double* data = nullptr;
  int64_t splits = 0, channels = 0;

  __device__ double& At(int value, int64_t split, int64_t channel) const {
    return data[(value * splits + split) * channels + channel];
  }
};

// Returns the size of the workspace that ChannelSums() needs.
template <int kValues, int N>
size_t PartialSumsBytes(int64_t pixels, int64_t channels) {
  return sizeof(double) * kValues * PartitionForSums(pixels, channels / N).pixel_blocks * channels;
}

// Adds values that all threads of a block hold in shared memory. Threads i, i + lanes, i + 2 *
// lanes, … belong to lane i. Calls put(value, lane, sum) for each of the kCount values and each
// lane.
template <int kCount, typename T, typename F>
__device__ void SumLanes(const T (&values)[kCount][kThreads], unsigned lanes, F put) {
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kCount * lanes; i += kThreads) {
    const unsigned value = i / lanes, lane = i % lanes;
    double sum = 0;
    for (unsigned thread = lane; thread < kThreads; thread += lanes) sum += values[value][thread];
    put(value, lane, sum);
  }
}

template <int kValues, int N, typename F>
__global__ void __launch_bounds__(kThreads, 2)  // more resident blocks would lack registers
    ChannelSumsKernel(MatrixPartition partition, PartialSums partial, F f) {
  constexpr int kFlush = 32;  // pixels of a float sum, which loses digits as it grows
  MatrixIndex at(partition);
  const int64_t pixels = f.Pixels();
  if (at.end > pixels) at.end = pixels;
  // Totals lie in shared memory: they are used rarely, and reads in flight need the registers.
  __shared__ float totals[kValues * N][kThreads];
  for (int i = 0; i < kValues * N; ++i) totals[i][threadIdx.x] = 0;
  if (at.begin < at.end) {
    const auto column = f.Column(at.column * N);
    for (int64_t begin = at.begin; begin < at.end; begin += kFlush * at.step) {
      Floats<N> sums[kValues] = {};
      for (int i = 0; i < kFlush; i += F::kReadsInFlight) {
        ReadAhead<F::kReadsInFlight>(
            begin + i * at.step, at.end, at.step,
            [&](int64_t pixel) { return f.Read(column, pixel); },
            [&](int64_t pixel, const auto& read) { f.Add(column, pixel, read, sums); });
      }
      for (int i = 0; i < kValues * N; ++i) totals[i][threadIdx.x] += sums[i / N][i % N];
    }
  }
  SumLanes(totals, partition.lanes, [&](unsigned i, unsigned lane, double sum) {
    const int64_t to = (int64_t{blockIdx.x} * partition.lanes + lane) * N + i % N;
    if (to < partial.channels) partial.At(i / N, blockIdx.y, to) = sum;
  });
}

// Each block of the second kernel adds the parts of this many channels. With more channels, each
// would get too few threads.
inline constexpr unsigned kPartLanes = 4;

template <int kValues, typename Finish>
__global__ void __launch_bounds__(kThreads, 2)  // without this bound, nvcc spills some parts
    AddPartsKernel(PartialSums partial, Finish finish) {
  const unsigned lane = threadIdx.x % kPartLanes;
  const int64_t channel = int64_t{blockIdx.x} * kPartLanes + lane;
  struct Part {
    double values[kValues] = {};
  } own;
  if (channel < partial.channels) {
    constexpr int kReadsInFlight = 8, kStep = kThreads / kPartLanes;
    for (int64_t s = threadIdx.x / kPartLanes; s < partial.splits; s += kReadsInFlight * kStep) {
      ReadAhead<kReadsInFlight>(
          s, partial.splits, kStep,
          [&](int64_t split) {
            Part part;
            for (int v = 0; v < kValues; ++v) part.values[v] = partial.At(v, split, channel);
            return part;
          },
          [&](int64_t, const Part& part) {
            for (int v = 0; v < kValues; ++v) own.values[v] += part.values[v];
          });
    }
  }
  __shared__ double totals[kThreads][kValues];
  for (int v = 0; v < kValues; ++v) totals[threadIdx.x][v] = own.values[v];
  for (unsigned half = kThreads / 2; half >= kPartLanes; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    for (int v = 0; v < kValues; ++v) totals[threadIdx.x][v] += totals[threadIdx.x + half][v];
  }
  if (threadIdx.x < kPartLanes && channel < partial.channels) finish(channel, totals[lane]);
}

// Enqueues a kernel that adds the parts of each channel, and calls finish(channel, sums) once for
// each channel.
template <int kValues, typename Finish>
void AddParts(cudaStream_t stream, const PartialSums& partial, Finish finish) {
  Launch(stream, dim3(static_cast<unsigned>(DivideUp(partial.channels, kPartLanes))),
         AddPartsKernel<kValues, Finish>, partial, finish);
}

// Enqueues kernels that compute kValues sums over the pixels of each of `channels` channels, N
// channels at once. The functor f has:
//   f.Pixels()                            the number of pixels to sum, at most `pixels`
//   f.Column(first channel)               data of a thread's N channels
//   f.Read(column, pixel)                 reads what Add() needs
//   f.Add(column, pixel, read, sums)      adds to the float sums: sums[value][channel]
//   F::kReadsInFlight                     the pixels that a thread reads at once, a divisor of 32
// Then finish(channel, sums) is called once for each channel, with its kValues sums as doubles.
// `workspace` has PartialSumsBytes<kValues, N>(pixels, channels) bytes.
template <int kValues, int N, typename F, typename Finish>
void ChannelSums(cudaStream_t stream, int64_t pixels, int64_t channels, std::byte* workspace, F f,
                 Finish finish) {
  const MatrixPartition partition = PartitionForSums(pixels, channels / N);
  if (channels == 0) return;
  const PartialSums partial{.data = reinterpret_cast<double*>(workspace),
                            .splits = partition.pixel_blocks,
                            .channels = channels};
  if (!partition.empty())
    Launch(stream, partition.grid(), ChannelSumsKernel<kValues, N, F>, partition, partial, f);
  AddParts<kValues>(stream, partial, finish);
}

// Writes the first sum of each channel to to[channel].
template <typename T>
struct WriteSum {
  T* to;
  __device__ void operator()(int64_t channel, const double* sums) const {
    to[channel] = static_cast<T>(static_cast<float>(sums[0]));
  }
};

}  // namespace carole::cuda
