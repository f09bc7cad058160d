// How this folder launches its own kernels. Private to the folder.
//
// Kernels keep to a small part of CUDA (of warps only what tensor_cores.h has, no dynamic shared
// memory), so that the tests can run them on a CPU too (tests/support/cuda_emulation).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "src/backend/cuda/runtime/status.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"

namespace carole::cuda {

inline constexpr int kThreads = 256;        // of every block
inline constexpr int64_t kMostLanes = 32;   // of a block's threads side by side in memory
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

// use(0), use(1), … below kCount, written out: nvcc unrolls few loops.
template <int kCount, typename Use>
__device__ void Unroll(const Use& use) {
  const auto each = [&]<int... k>(std::integer_sequence<int, k...>) { (use(k), ...); };
  each(std::make_integer_sequence<int, kCount>());
}

// write(k, read(k)) for k = 0, 1, … below kCount, all of them read before any is written: a GPU's
// memory is only busy while enough of it is under way.
template <int kCount, typename Read, typename Write>
__device__ void ReadFirst(const Read& read, const Write& write) {
  const auto each = [&]<int... k>(std::integer_sequence<int, k...>) {
    const decltype(read(0)) values[] = {read(k)...};
    (write(k, values[k]), ...);
  };
  each(std::make_integer_sequence<int, kCount>());
}

// So for at most kAhead of i, i + step, … below end. Asks for the last one first: at each question
// in between nvcc waits for what was read before it.
template <int kAhead, typename Read, typename Write>
__device__ void ReadAhead(int64_t i, int64_t end, int64_t step, const Read& read,
                          const Write& write) {
  if (i + (kAhead - 1) * step < end) {
    ReadFirst<kAhead>([&](int k) { return read(i + k * step); },
                      [&](int k, const auto& value) { write(i + k * step, value); });
  } else if constexpr (kAhead > 1) {
    ReadAhead<kAhead - 1>(i, end, step, read, write);
  }
}

// Functors that have Read() and Write() instead of operator().
template <typename F>
concept ReadsAhead = (F::kAhead > 0);

template <typename F>
__global__ void __launch_bounds__(kThreads) ForEachKernel(int64_t count, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t begin = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if constexpr (ReadsAhead<F>) {
    for (int64_t i = begin; i < count; i += F::kAhead * step) {
      ReadAhead<F::kAhead>(
          i, count, step, [&](int64_t j) { return f.Read(j); },
          [&](int64_t j, const auto& read) { f.Write(j, read); });
    }
  } else {
    for (int64_t i = begin; i < count; i += step) f(i);
  }
}

// Calls f(i), or f.Write(i, f.Read(i)), for i in [0, count), in any order.
template <typename F>
void ForEach(cudaStream_t stream, int64_t count, F f) {
  if (count == 0) return;
  const int64_t blocks = DivideUp(count, kThreads);
  Launch(stream, dim3(static_cast<unsigned>(blocks < kFullGrid ? blocks : kFullGrid)),
         ForEachKernel<F>, count, f);
}

// How a matrix (pixels, columns) is cut into about `full` blocks: each has `lanes` columns,
// kThreads / lanes pixels side by side, and a chunk of pixels that lie together: at least `least`
// for each thread, where there are so many.
struct MatrixCut {
  int64_t pixels, columns, chunk = 0;
  unsigned lanes = 1, column_blocks = 0, pixel_blocks = 0;

  MatrixCut(int64_t pixels, int64_t columns, int64_t full, int64_t least = 1)
      : pixels(pixels), columns(columns) {
    CAROLE_CHECK(pixels <= UINT32_MAX, "{} pixels of all images", pixels);  // see ImagePixel
    if (pixels == 0 || columns == 0) return;
    column_blocks = static_cast<unsigned>(DivideUp(columns, kMostLanes));
    lanes = static_cast<unsigned>(DivideUp(columns, column_blocks));
    const int64_t side_by_side = kThreads / lanes;
    const int64_t wanted = DivideUp(full, column_blocks), fair = DivideUp(pixels, wanted);
    chunk = DivideUp(fair > least * side_by_side ? fair : least * side_by_side, side_by_side) *
            side_by_side;
    pixel_blocks = static_cast<unsigned>(DivideUp(pixels, chunk));
  }
  bool empty() const { return pixel_blocks == 0; }
  dim3 grid() const { return dim3(column_blocks, pixel_blocks); }
};

// Where a thread stands in it: its column, and its pixels. Those that are one too many have none.
struct MatrixIndex {
  int64_t column, begin, end, step;

  __device__ explicit MatrixIndex(const MatrixCut& cut)
      : column(int64_t{blockIdx.x} * cut.lanes + threadIdx.x % cut.lanes),
        begin(int64_t{blockIdx.y} * cut.chunk + threadIdx.x / cut.lanes),
        end((int64_t{blockIdx.y} + 1) * cut.chunk),
        step(kThreads / cut.lanes) {
    if (end > cut.pixels) end = cut.pixels;
    if (column >= cut.columns || threadIdx.x / cut.lanes >= step) end = 0;
  }
};

// Where pixel number i lies in images of h x w. In 32 bits: divisions of 64 take several times as
// long as all else that a kernel does.
struct ImagePixel {
  int64_t image;
  int row, column;

  __device__ ImagePixel(int64_t i, int64_t h, int64_t w) {
    const auto number = static_cast<uint32_t>(i), height = static_cast<uint32_t>(h),
               width = static_cast<uint32_t>(w);
    const uint32_t rows = number / width, images = rows / height;
    image = images;
    row = static_cast<int>(rows - images * height);
    column = static_cast<int>(number - rows * width);
  }
};

template <int N, typename F>
__global__ void __launch_bounds__(kThreads, 2)  // blocks at once: one reads, one calculates
    ForMatrixKernel(MatrixCut cut, F f) {
  const MatrixIndex at(cut);
  if (at.begin >= at.end) return;
  const auto column = f.Column(at.column * N);
  if constexpr (ReadsAhead<F>) {
    for (int64_t i = at.begin; i < at.end; i += F::kAhead * at.step) {
      ReadAhead<F::kAhead>(
          i, at.end, at.step, [&](int64_t pixel) { return f.Read(column, pixel); },
          [&](int64_t pixel, const auto& read) { f.Write(column, pixel, read); });
    }
  } else {
    for (int64_t pixel = at.begin; pixel < at.end; pixel += at.step) f(column, pixel);
  }
}

// For a matrix (pixels, channels), N channels at once: column = f.Column(first channel) once for
// each thread, then f(column, pixel), or f.Write(column, pixel, f.Read(column, pixel)), for its
// pixels. Saves the division that an index into the whole would need.
template <int N, typename F>
void ForMatrix(cudaStream_t stream, int64_t pixels, int64_t channels, F f) {
  const MatrixCut cut(pixels, channels / N, kFullGrid);
  if (!cut.empty()) Launch(stream, cut.grid(), ForMatrixKernel<N, F>, cut, f);
}

}  // namespace carole::cuda
