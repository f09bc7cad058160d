// Stands in for CUDA's header where no GPU is: our own kernels (src/backend/cuda/*.cu), compiled as
// C++, run on the CPU, when the stream that they are given to comes to them. Each thread of a block
// is a fiber; __syncthreads() lets the others come as far. Shows wrong arithmetic and wrong
// indexes, not races within a kernel or bad speed.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/streams.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(threads)
#define __shared__ static

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

// Memory is the host's.
inline cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (EmulatedStickyError() != cudaSuccess) return EmulatedStickyError();
  if (thread_captures) return cudaErrorStreamCaptureUnsupported;
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaMallocManaged(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes);
}
inline cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* all) {
  *free = *all = 0;
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline dim3 gridDim, blockDim, blockIdx, threadIdx;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace cuda_emulation {

// The threads of one block, run in turn from barrier to barrier.
class Block {
 public:
  explicit Block(unsigned threads) : fibers_(threads) {
    for (Fiber& fiber : fibers_) fiber.stack.resize(kStackBytes);
  }

  void Run(const std::function<void()>& kernel) {
    kernel_ = &kernel;
    current_block = this;
    for (size_t i = 0; i < fibers_.size(); ++i) Prepare(fibers_[i]);
    for (size_t running = fibers_.size(); running > 0;) {
      running = 0;
      for (size_t i = 0; i < fibers_.size(); ++i) {
        if (fibers_[i].done) continue;
        current_ = i;
        threadIdx = dim3(static_cast<unsigned>(i));
        swapcontext(&scheduler_, &fibers_[i].context);
        running += !fibers_[i].done;
      }
    }
  }

  void Barrier() { swapcontext(&fibers_[current_].context, &scheduler_); }

  static inline Block* current_block = nullptr;

 private:
  static constexpr size_t kStackBytes = 64 << 10;
  struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false;
  };

  static void Enter() {
    Block& block = *current_block;
    (*block.kernel_)();
    block.fibers_[block.current_].done = true;
    block.Barrier();
  }

  void Prepare(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    fiber.done = false;
    makecontext(&fiber.context, &Block::Enter, 0);
  }

  std::vector<Fiber> fibers_;
  ucontext_t scheduler_;
  const std::function<void()>* kernel_ = nullptr;
  size_t current_ = 0;
};

// Kept from launch to launch: its stacks are large.
inline Block& BlockOf(unsigned threads) {
  static thread_local std::map<unsigned, Block> blocks;
  return blocks.try_emplace(threads, threads).first->second;
}

}  // namespace cuda_emulation

inline void __syncthreads() { cuda_emulation::Block::current_block->Barrier(); }

namespace cuda_emulation {

// One kernel at a time, of all ranks: what they share lies in static memory.
inline void RunGrid(dim3 grid, dim3 threads, const std::function<void()>& thread) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Block& block = BlockOf(threads.x);
  gridDim = grid;
  blockDim = threads;
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y);
      block.Run(thread);
    }
  }
}

}  // namespace cuda_emulation

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (EmulatedStickyError() != cudaSuccess) return EmulatedStickyError();
  EmulatedPush(config->stream,
               [kernel, grid = config->gridDim, threads = config->blockDim,
                values = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
                 cuda_emulation::RunGrid(grid, threads, [&] { std::apply(kernel, values); });
               });
  return cudaSuccess;
}
