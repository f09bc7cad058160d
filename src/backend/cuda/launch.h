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

inline constexpr int kThreads = 256;        // of every block
inline constexpr unsigned kMostLanes = 32;  // of a block's threads side by side in memory
inline constexpr int64_t kFullGrid = 2048;  // blocks that keep the largest GPU busy

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

// How a matrix (pixels, columns) is cut into blocks: `lanes` neighbours, and kThreads / lanes
// pixels side by side.
inline unsigned Lanes(int64_t columns) {
  unsigned lanes = 1;
  while (lanes < kMostLanes && lanes < columns) lanes *= 2;
  return lanes;
}

// Where a thread stands in it: its column, its first pixel and the step to its next one.
struct MatrixPlace {
  int64_t column, first, step;

  __device__ explicit MatrixPlace(unsigned lanes)
      : column(int64_t{blockIdx.x} * lanes + threadIdx.x % lanes),
        first(int64_t{blockIdx.y} * (kThreads / lanes) + threadIdx.x / lanes),
        step(int64_t{gridDim.y} * (kThreads / lanes)) {}
};

// Blocks along pixels so that the whole grid is about full.
inline int64_t PixelBlocks(int64_t pixels, int64_t columns, int64_t full) {
  const unsigned lanes = Lanes(columns);
  const int64_t wanted = DivideUp(full, DivideUp(columns, lanes));
  const int64_t most = DivideUp(pixels, kThreads / lanes);
  return wanted < most ? wanted : most;
}

inline dim3 MatrixGrid(int64_t columns, int64_t pixel_blocks) {
  return dim3(static_cast<unsigned>(DivideUp(columns, Lanes(columns))),
              static_cast<unsigned>(pixel_blocks));
}

template <int N, typename F>
__global__ void __launch_bounds__(kThreads)
    ForMatrixKernel(int64_t pixels, int64_t columns, unsigned lanes, F f) {
  const MatrixPlace at(lanes);
  if (at.column >= columns) return;
  const auto column = f.Column(at.column * N);
  for (int64_t pixel = at.first; pixel < pixels; pixel += at.step) f(column, pixel);
}

// For a matrix (pixels, channels), N channels at once: column = f.Column(first channel) once for
// each thread, then f(column, pixel) for its pixels. Saves the division that an index into the
// whole would need.
template <int N, typename F>
void ForMatrix(cudaStream_t stream, int64_t pixels, int64_t channels, F f) {
  if (pixels == 0 || channels == 0) return;
  const int64_t columns = channels / N;
  Launch(stream, MatrixGrid(columns, PixelBlocks(pixels, columns, kFullGrid)),
         ForMatrixKernel<N, F>, pixels, columns, Lanes(columns), f);
}

}  // namespace carole::cuda
