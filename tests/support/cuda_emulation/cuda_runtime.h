// Emulates the CUDA runtime on the CPU. It replaces CUDA's header of this name, so that our own
// kernels (src/backend/cuda) can be compiled as C++ and tested on machines without a GPU.
//
// A kernel runs when its stream reaches it. Each thread of a block is a fiber; __syncthreads()
// switches to the next fiber. Threads and blocks run in ascending order in some launches, and in
// descending order in others, so that a missing barrier changes the result.
//
// The emulation detects wrong arithmetic, wrong indexes, grids that a GPU refuses, barriers that
// not all threads reach, and misaligned vectors. It does not detect all races, nor slow kernels.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
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
#define __launch_bounds__(...)
#define __shared__ static

inline cudaError_t cudaGetDeviceCount(int* count) {
  const char* set = std::getenv("CAROLE_EMULATED_GPUS");
  *count = set == nullptr ? 1 : std::atoi(set);
  return cudaSuccess;
}
struct cudaDeviceProp {
  char name[256];
  struct {
    char bytes[16];
  } uuid;
  int major, minor;
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {"emulated GPU", {{static_cast<char>(0xA0 + device)}}, 9, 0};
  return cudaSuccess;
}

// Device memory is host memory.
inline cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (EmulatedStickyError() != cudaSuccess) return EmulatedStickyError();
  if (thread_captures) return cudaErrorStreamCaptureUnsupported;
  return posix_memalign(memory, 256, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (thread_device != EmulatedDeviceOfProcess()) {
    std::fputs("emulated GPU: memory is allocated on another device than the process's\n", stderr);
    std::abort();
  }
  const cudaError_t status = cudaMallocHost(memory, bytes);
  if (status == cudaSuccess) DeviceRanges().Add(*memory, bytes);
  return status;
}
inline cudaError_t cudaMallocManaged(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes);
}
inline cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  DeviceRanges().Remove(memory);
  return cudaFreeHost(memory);
}
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* all) {
  *all = size_t{16} << 30;
  *free = *all - std::min(*all, DeviceRanges().Bytes());
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

// Kernels read memory of other types through these vectors, so they may alias.
struct alignas(8) [[gnu::may_alias]] uint2 {
  uint32_t x, y;
};
struct alignas(16) [[gnu::may_alias]] uint4 {
  uint32_t x, y, z, w;
};
inline void __stwb(uint2* to, uint2 value) { *to = value; }
inline void __stwb(uint4* to, uint4 value) { *to = value; }

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace cuda_emulation {

// Runs the threads of one block in turn, from barrier to barrier. A fiber runs one thread after the
// other, until a thread waits at a barrier; that thread keeps the fiber.
class Block {
 public:
  explicit Block(unsigned threads) : fibers_(threads) {
    for (Fiber& fiber : fibers_) fiber.stack.resize(kStackBytes);
  }

  void Run(const std::function<void()>& kernel, bool reversed) {
    kernel_ = &kernel;
    reversed_ = reversed;
    current_block = this;
    started_ = 0;
    size_t waiting = 0;
    while (started_ < fibers_.size()) waiting += Start(waiting) ? 1 : 0;
    while (waiting > 0) {
      if (waiting < fibers_.size()) {
        std::fputs("emulated GPU: a barrier that some threads of a block do not reach\n", stderr);
        std::abort();
      }
      waiting = 0;
      for (size_t i = 0; i < fibers_.size(); ++i) waiting += Continue(i) ? 1 : 0;
    }
  }

  void Barrier() {
    if (_setjmp(fibers_[current_].waits) == 0) _longjmp(scheduler_, 1);
  }

  static inline Block* current_block = nullptr;

 private:
  static constexpr size_t kStackBytes = 64 << 10;
  struct Fiber {
    std::vector<char> stack;
    jmp_buf waits;
    unsigned thread = 0;
    bool done = false;
  };

  // Runs fiber i. Returns whether its thread waits at a barrier; otherwise no thread is left to
  // run.
  bool Start(size_t i) {
    Fiber& fiber = fibers_[i];
    current_ = i;
    fiber.done = false;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.data();
    context.uc_stack.ss_size = fiber.stack.size();
    makecontext(&context, &Block::Enter, 0);
    if (_setjmp(scheduler_) == 0) setcontext(&context);
    return !fibers_[current_].done;
  }
  // Continues fiber i. Uses jumps, since switching contexts needs system calls.
  bool Continue(size_t i) {
    current_ = i;
    threadIdx = dim3(fibers_[i].thread);
    if (_setjmp(scheduler_) == 0) _longjmp(fibers_[i].waits, 1);
    return !fibers_[current_].done;
  }
  static void Enter() {
    Block& block = *current_block;
    Fiber& fiber = block.fibers_[block.current_];
    while (block.started_ < block.fibers_.size()) {
      const size_t number = block.started_++;
      fiber.thread =
          static_cast<unsigned>(block.reversed_ ? block.fibers_.size() - 1 - number : number);
      threadIdx = dim3(fiber.thread);
      (*block.kernel_)();
    }
    fiber.done = true;
    block.Barrier();
  }

  std::vector<Fiber> fibers_;  // one for each thread
  jmp_buf scheduler_;
  const std::function<void()>* kernel_ = nullptr;
  size_t current_ = 0, started_ = 0;  // the running fiber; the number of threads started
  bool reversed_ = false;
};

// Returns the fibers for blocks of this size. They are kept from launch to launch, since their
// stacks are large.
inline Block& BlockOf(unsigned threads) {
  static thread_local std::map<unsigned, Block> blocks;
  return blocks.try_emplace(threads, threads).first->second;
}

}  // namespace cuda_emulation

inline void __syncthreads() { cuda_emulation::Block::current_block->Barrier(); }

namespace cuda_emulation {

// Emulates MultiplyAdd() of tensor_cores.h. Here all warps of a block must call it together.
template <typename T>
void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  constexpr unsigned kMaxThreads = 1024, kLanes = 32;
  static uint32_t of_a[kMaxThreads][4], of_b[kMaxThreads][2];
  std::memcpy(of_a[threadIdx.x], a, sizeof(a));
  std::memcpy(of_b[threadIdx.x], b, sizeof(b));
  __syncthreads();
  const unsigned warp = threadIdx.x / kLanes * kLanes, g = threadIdx.x % kLanes / 4;
  const auto element = [](uint32_t word, unsigned half) {
    const auto bits = static_cast<uint16_t>(half == 0 ? word : word >> 16);
    T value;
    std::memcpy(&value, &bits, sizeof(bits));
    return static_cast<float>(value);
  };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = g + i / 2 * 8, column = threadIdx.x % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned lane = k % 8 / 2, upper = k / 8;
      d[i] += element(of_a[warp + row % 8 * 4 + lane][row / 8 + 2 * upper], k % 2) *
              element(of_b[warp + column * 4 + lane][upper], k % 2);
    }
  }
  __syncthreads();
}

// Runs a kernel. Only one kernel of the process runs at a time, since shared memory is static
// memory.
inline void RunGrid(dim3 grid, dim3 threads, const std::function<void()>& thread) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Block& block = BlockOf(threads.x);
  gridDim = grid;
  blockDim = threads;
  static unsigned launches = 0;  // picks the order by the Thue-Morse sequence, which has no period
  const bool reversed = std::popcount(launches++) % 2 != 0;
  const uint64_t blocks = uint64_t{grid.x} * grid.y;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t number = reversed ? blocks - 1 - i : i;
    blockIdx = dim3(static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x));
    block.Run(thread, reversed);
  }
}

// Whether GPUs of all generations accept this grid.
inline bool IsGrid(dim3 grid, dim3 threads) {
  constexpr unsigned kMaxX = 0x7FFFFFFF, kMaxY = 65535, kMaxThreads = 1024;
  return grid.x >= 1 && grid.x <= kMaxX && grid.y >= 1 && grid.y <= kMaxY && grid.z == 1 &&
         threads.x >= 1 && threads.x <= kMaxThreads && threads.y == 1 && threads.z == 1;
}

}  // namespace cuda_emulation

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static_assert(sizeof(std::tuple<Parameters...>) <= 4096, "parameters of a kernel");
  if (EmulatedStickyError() != cudaSuccess) return EmulatedStickyError();
  if (config->stream != nullptr && config->stream->device != thread_device)
    return cudaErrorInvalidResourceHandle;
  if (!cuda_emulation::IsGrid(config->gridDim, config->blockDim))
    return cudaErrorInvalidConfiguration;
  EmulatedPush(config->stream,
               [kernel, grid = config->gridDim, threads = config->blockDim,
                values = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
                 cuda_emulation::RunGrid(grid, threads, [&] { std::apply(kernel, values); });
               });
  return cudaSuccess;
}
