// How this folder launches its own kernels. Private to the folder.
//
// Kernels keep to a small part of CUDA (no warp intrinsics, no dynamic shared memory), so that the
// tests can run them on a CPU too (tests/support/cuda_emulation).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "src/backend/cuda/status.h"

namespace carole::cuda {

inline constexpr int kThreads = 256;             // of every block
inline constexpr int kLanes = 32;                // channels of a block, neighbours in memory
inline constexpr int kRows = kThreads / kLanes;  // pixels that a block looks at side by side
inline constexpr int64_t kFullGrid = 2048;       // blocks that keep the largest GPU busy

template <typename... Parameters, typename... Arguments>
void Launch(cudaStream_t stream, dim3 grid, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  Check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
        "cudaLaunchKernelEx");
}

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename F>
__global__ void __launch_bounds__(kThreads) ForEachKernel(int64_t count, F f) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) f(i);
}

// Calls f(i) for i in [0, count), in any order.
template <typename F>
void ForEach(cudaStream_t stream, int64_t count, F f) {
  if (count == 0) return;
  const int64_t blocks = DivideUp(count, kThreads);
  Launch(stream, dim3(static_cast<unsigned>(blocks < kFullGrid ? blocks : kFullGrid)),
         ForEachKernel<F>, count, f);
}

// Where a thread stands in a matrix (pixels, channels) that is cut into blocks of kRows x kLanes:
// its channel, its first pixel and the step to its next one.
struct MatrixPlace {
  int64_t channel, first, step;

  __device__ MatrixPlace()
      : channel(int64_t{blockIdx.x} * kLanes + threadIdx.x % kLanes),
        first(int64_t{blockIdx.y} * kRows + threadIdx.x / kLanes),
        step(int64_t{gridDim.y} * kRows) {}
};

// Blocks along pixels so that the whole grid is about full.
inline int64_t PixelBlocks(int64_t pixels, int64_t channels, int64_t full) {
  const int64_t columns = DivideUp(channels, kLanes);
  const int64_t wanted = DivideUp(full, columns), most = DivideUp(pixels, kRows);
  return wanted < most ? wanted : most;
}

inline dim3 MatrixGrid(int64_t pixels, int64_t channels, int64_t full) {
  return dim3(static_cast<unsigned>(DivideUp(channels, kLanes)),
              static_cast<unsigned>(PixelBlocks(pixels, channels, full)));
}

template <typename F>
__global__ void __launch_bounds__(kThreads) ForMatrixKernel(int64_t pixels, int64_t channels, F f) {
  const MatrixPlace at;
  if (at.channel >= channels) return;
  const auto column = f.Column(at.channel);
  for (int64_t pixel = at.first; pixel < pixels; pixel += at.step) f(column, pixel);
}

// For a matrix (pixels, channels): column = f.Column(channel) once for each thread, then
// f(column, pixel) for its pixels. Saves the division that an index into the whole would need.
template <typename F>
void ForMatrix(cudaStream_t stream, int64_t pixels, int64_t channels, F f) {
  if (pixels == 0 || channels == 0) return;
  Launch(stream, MatrixGrid(pixels, channels, kFullGrid), ForMatrixKernel<F>, pixels, channels, f);
}

}  // namespace carole::cuda
