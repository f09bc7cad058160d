// Sums over the pixels of each channel, in an order that the shapes alone decide: the blocks of one
// grid leave parts behind, which those of a second one add up.
#pragma once

#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"

namespace carole::cuda {

// Fewer blocks than elsewhere, with more to do: each leaves a part behind.
inline MatrixCut CutForSums(int64_t pixels, int64_t columns) {
  constexpr int64_t kBlocks = 1024, kLeastPixels = 8;
  return {pixels, columns, kBlocks, kLeastPixels};
}

// The sums that each block of pixels has of each channel's values: kValues x splits x channels.
struct PartialSums {
  double* data = nullptr;
  int64_t splits = 0, channels = 0;

  __device__ double& At(int value, int64_t split, int64_t channel) const {
    return data[(value * splits + split) * channels + channel];
  }
};

template <int kValues, int N>
size_t PartialSumsBytes(int64_t pixels, int64_t channels) {
  return sizeof(double) * kValues * CutForSums(pixels, channels / N).pixel_blocks * channels;
}

// For each of the kCount values that all threads have in shared memory and each lane: put(value,
// lane, sum) with the sum over the threads that stand `lanes` apart.
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
__global__ void __launch_bounds__(kThreads, 2)  // blocks at once: more would want for registers
    ChannelSumsKernel(MatrixCut cut, PartialSums partial, F f) {
  constexpr int kFlush = 32;  // pixels: a float's sum loses digits as it grows
  MatrixIndex at(cut);
  const int64_t pixels = f.Pixels();
  if (at.end > pixels) at.end = pixels;
  // Seldom added to: registers are wanted for reads that are under way.
  __shared__ float totals[kValues * N][kThreads];
  for (int i = 0; i < kValues * N; ++i) totals[i][threadIdx.x] = 0;
  if (at.begin < at.end) {
    const auto column = f.Column(at.column * N);
    for (int64_t begin = at.begin; begin < at.end; begin += kFlush * at.step) {
      Floats<N> sums[kValues] = {};
      for (int i = 0; i < kFlush; i += F::kAhead) {
        ReadAhead<F::kAhead>(
            begin + i * at.step, at.end, at.step,
            [&](int64_t pixel) { return f.Read(column, pixel); },
            [&](int64_t pixel, const auto& read) { f.Add(column, pixel, read, sums); });
      }
      for (int i = 0; i < kValues * N; ++i) totals[i][threadIdx.x] += sums[i / N][i % N];
    }
  }
  SumLanes(totals, cut.lanes, [&](unsigned i, unsigned lane, double sum) {
    const int64_t to = (int64_t{blockIdx.x} * cut.lanes + lane) * N + i % N;
    if (to < partial.channels) partial.At(i / N, blockIdx.y, to) = sum;
  });
}

// A few channels for each block: more would leave too few threads for the parts of each.
inline constexpr unsigned kPartLanes = 4;

template <int kValues, typename Finish>
__global__ void __launch_bounds__(kThreads, 2)  // blocks at once: of itself nvcc spills some parts
    AddPartsKernel(PartialSums partial, Finish finish) {
  const unsigned lane = threadIdx.x % kPartLanes;
  const int64_t channel = int64_t{blockIdx.x} * kPartLanes + lane;
  struct Part {
    double values[kValues] = {};
  } own;
  if (channel < partial.channels) {
    constexpr int kAhead = 8, kStep = kThreads / kPartLanes;
    for (int64_t s = threadIdx.x / kPartLanes; s < partial.splits; s += kAhead * kStep) {
      ReadAhead<kAhead>(
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

// finish(channel, sums) once for each channel, with the sums of its parts.
template <int kValues, typename Finish>
void AddParts(cudaStream_t stream, const PartialSums& partial, Finish finish) {
  Launch(stream, dim3(static_cast<unsigned>(DivideUp(partial.channels, kPartLanes))),
         AddPartsKernel<kValues, Finish>, partial, finish);
}

// The sums of `channels` channels, N at once: f.Pixels() is the number of pixels that count;
// f.Read(column, pixel) gets what f.Add(column, pixel, read, sums) adds to float sums, N of each
// value; F::kAhead, a divisor of 32, is how many pixels a thread reads at once. Then
// finish(channel, sums) is called once for each channel, with its kValues sums. `workspace` is
// PartialSumsBytes<kValues, N> large.
template <int kValues, int N, typename F, typename Finish>
void ChannelSums(cudaStream_t stream, int64_t pixels, int64_t channels, std::byte* workspace, F f,
                 Finish finish) {
  const MatrixCut cut = CutForSums(pixels, channels / N);
  if (channels == 0) return;
  const PartialSums partial{.data = reinterpret_cast<double*>(workspace),
                            .splits = cut.pixel_blocks,
                            .channels = channels};
  if (!cut.empty()) Launch(stream, cut.grid(), ChannelSumsKernel<kValues, N, F>, cut, partial, f);
  AddParts<kValues>(stream, partial, finish);
}

// to[channel] = the first sum.
template <typename T>
struct WriteSum {
  T* to;
  __device__ void operator()(int64_t channel, const double* sums) const {
    to[channel] = static_cast<T>(static_cast<float>(sums[0]));
  }
};

}  // namespace carole::cuda
