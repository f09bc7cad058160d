// Launches our own kernels: loops over elements (ForEach) and over matrices (ForMatrix), with
// several reads in flight in each thread. Private to src/backend/cuda.
//
// Kernels use only a small part of CUDA, so that tests can also run them on a CPU
// (tests/support/cuda_emulation). They use no dynamic shared memory, and no warp instructions
// except those of tensor_cores.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "src/backend/cuda/runtime/status.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"

namespace carole::cuda {

inline constexpr int kThreads = 256;        // threads of every block
inline constexpr int64_t kMaxLanes = 32;    // threads of a block that access adjacent columns
inline constexpr int64_t kFullGrid = 2048;  // blocks that keep the largest GPU busy

// Launches `kernel` with blocks of kThreads threads. Throws DeviceError if CUDA refuses the launch.
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

// Calls use(0), use(1), …, use(kCount - 1). The loop is unrolled at compile time, since nvcc
// unrolls few loops itself.
template <int kCount, typename Use>
__device__ void Unroll(const Use& use) {
  const auto each = [&]<int... k>(std::integer_sequence<int, k...>) { (use(k), ...); };
  each(std::make_integer_sequence<int, kCount>());
}

// Calls write(k, read(k)) for k in [0, kCount). All reads are issued before the first write: device
// memory is busy only while enough reads are in flight.
template <int kCount, typename Read, typename Write>
__device__ void ReadThenUse(const Read& read, const Write& write) {
  const auto each = [&]<int... k>(std::integer_sequence<int, k...>) {
    const decltype(read(0)) values[] = {read(k)...};
    (write(k, values[k]), ...);
  };
  each(std::make_integer_sequence<int, kCount>());
}

// Calls write(j, read(j)) for the first kReadsInFlight of j = i, i + step, … that are below `end`.
// One test covers all of them: at each test between two reads, nvcc would wait for the earlier
// read.
template <int kReadsInFlight, typename Read, typename Write>
__device__ void ReadAhead(int64_t i, int64_t end, int64_t step, const Read& read,
                          const Write& write) {
  if (i + (kReadsInFlight - 1) * step < end) {
    ReadThenUse<kReadsInFlight>([&](int k) { return read(i + k * step); },
                                [&](int k, const auto& value) { write(i + k * step, value); });
  } else if constexpr (kReadsInFlight > 1) {
    ReadAhead<kReadsInFlight - 1>(i, end, step, read, write);
  }
}

// A functor that has Read() and Write() instead of operator(), and F::kReadsInFlight, the number of
// reads that each thread issues before its first write.
template <typename F>
concept HasReadAndWrite = (F::kReadsInFlight > 0);

template <typename F>
__global__ void __launch_bounds__(kThreads) ForEachKernel(int64_t count, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t begin = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if constexpr (HasReadAndWrite<F>) {
    for (int64_t i = begin; i < count; i += F::kReadsInFlight * step) {
      ReadAhead<F::kReadsInFlight>(
          i, count, step, [&](int64_t j) { return f.Read(j); },
          [&](int64_t j, const auto& read) { f.Write(j, read); });
    }
  } else {
    for (int64_t i = begin; i < count; i += step) f(i);
  }
}

// Enqueues a kernel that calls f(i), or f.Write(i, f.Read(i)), for each i in [0, count), in any
// order.
template <typename F>
void ForEach(cudaStream_t stream, int64_t count, F f) {
  if (count == 0) return;
  const int64_t blocks = DivideUp(count, kThreads);
  Launch(stream, dim3(static_cast<unsigned>(blocks < kFullGrid ? blocks : kFullGrid)),
         ForEachKernel<F>, count, f);
}

// The partition of a matrix (pixels, columns) into about `full` blocks of threads.
//   lanes   the columns of a block. Its threads work on kThreads / lanes pixels at a time.
//   chunk   the consecutive pixels of a block: at least `least` for each thread, if the matrix has
//           that many
struct MatrixPartition {
  int64_t pixels, columns, chunk = 0;
  unsigned lanes = 1, column_blocks = 0, pixel_blocks = 0;

  MatrixPartition(int64_t pixels, int64_t columns, int64_t full, int64_t least = 1)
      : pixels(pixels), columns(columns) {
    CAROLE_CHECK(pixels <= UINT32_MAX, "{} pixels in all images, want at most 2^32 - 1",
                 pixels);  // for ImagePixel
    if (pixels == 0 || columns == 0) return;
    column_blocks = static_cast<unsigned>(DivideUp(columns, kMaxLanes));
    lanes = static_cast<unsigned>(DivideUp(columns, column_blocks));
    const int64_t rows = kThreads / lanes;
    const int64_t wanted = DivideUp(full, column_blocks), fair = DivideUp(pixels, wanted);
    chunk = DivideUp(fair > least * rows ? fair : least * rows, rows) * rows;
    pixel_blocks = static_cast<unsigned>(DivideUp(pixels, chunk));
  }
  bool empty() const { return pixel_blocks == 0; }
  dim3 grid() const { return dim3(column_blocks, pixel_blocks); }
};

// The part of a MatrixPartition that the calling thread works on: one column, and the pixels begin,
// begin + step, … below `end`. Surplus threads get no pixels.
struct MatrixIndex {
  int64_t column, begin, end, step;

  __device__ explicit MatrixIndex(const MatrixPartition& partition)
      : column(int64_t{blockIdx.x} * partition.lanes + threadIdx.x % partition.lanes),
        begin(int64_t{blockIdx.y} * partition.chunk + threadIdx.x / partition.lanes),
        end((int64_t{blockIdx.y} + 1) * partition.chunk),
        step(kThreads / partition.lanes) {
    if (end > partition.pixels) end = partition.pixels;
    if (column >= partition.columns || threadIdx.x / partition.lanes >= step) end = 0;
  }
};

// The image, row and column of pixel number i of images of h x w pixels. Computed in 32 bits:
// 64-bit divisions take several times as long as everything else that a kernel does.
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
__global__ void __launch_bounds__(kThreads, 2)  // two resident blocks: one reads, one computes
    ForMatrixKernel(MatrixPartition partition, F f) {
  const MatrixIndex at(partition);
  if (at.begin >= at.end) return;
  const auto column = f.Column(at.column * N);
  if constexpr (HasReadAndWrite<F>) {
    for (int64_t i = at.begin; i < at.end; i += F::kReadsInFlight * at.step) {
      ReadAhead<F::kReadsInFlight>(
          i, at.end, at.step, [&](int64_t pixel) { return f.Read(column, pixel); },
          [&](int64_t pixel, const auto& read) { f.Write(column, pixel, read); });
    }
  } else {
    for (int64_t pixel = at.begin; pixel < at.end; pixel += at.step) f(column, pixel);
  }
}

// Enqueues a kernel over a matrix (pixels, channels) that works on N channels at once. Each thread
// calls column = f.Column(first channel) once. Then it calls f(column, pixel), or
// f.Write(column, pixel, f.Read(column, pixel)), for each of its pixels. This saves the division
// that an index into the whole matrix would need.
template <int N, typename F>
void ForMatrix(cudaStream_t stream, int64_t pixels, int64_t channels, F f) {
  const MatrixPartition partition(pixels, channels / N, kFullGrid);
  if (!partition.empty()) Launch(stream, partition.grid(), ForMatrixKernel<N, F>, partition, f);
}

}  // namespace carole::cuda
