#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "collectives/nccl/bf16_wire.h"
#include "src/core/divide_up.h"

namespace carole::collectives {
namespace {

constexpr unsigned kThreads = 256;     // of each block
constexpr int64_t kMostBlocks = 2048;  // they keep the largest GPU busy
constexpr int kPack = 4;               // neighbors that a thread reads and writes at once

template <typename T>
struct alignas(kPack * sizeof(T)) Pack {
  T values[kPack];
};

template <typename T>
__host__ __device__ bool IsAligned(const T* values) {
  return reinterpret_cast<uintptr_t>(values) % sizeof(Pack<T>) == 0;
}

// Converts packs if both ranges are aligned, and single values where no whole pack is left.
template <typename From, typename To>
__global__ void __launch_bounds__(kThreads) ConvertKernel(const From* from, To* to, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t packs = IsAligned(from) && IsAligned(to) ? count / kPack : 0;
  for (int64_t i = first; i < packs; i += step) {
    const Pack<From> in = reinterpret_cast<const Pack<From>*>(from)[i];
    Pack<To> out;
    for (int k = 0; k < kPack; ++k) out.values[k] = static_cast<To>(in.values[k]);
    reinterpret_cast<Pack<To>*>(to)[i] = out;
  }
  for (int64_t i = packs * kPack + first; i < count; i += step) to[i] = static_cast<To>(from[i]);
}

template <typename From, typename To>
cudaError_t Convert(const From* from, To* to, size_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const auto values = static_cast<int64_t>(count);
  const int64_t blocks = DivideUp(values, int64_t{kPack} * kThreads);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(blocks, kMostBlocks)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, ConvertKernel<From, To>, from, to, values);
}

}  // namespace

cudaError_t RoundToWire(const float* from, Bf16* to, size_t count, cudaStream_t stream) {
  return Convert(from, reinterpret_cast<__nv_bfloat16*>(to), count, stream);
}

cudaError_t WidenFromWire(const Bf16* from, float* to, size_t count, cudaStream_t stream) {
  return Convert(reinterpret_cast<const __nv_bfloat16*>(from), to, count, stream);
}

}  // namespace carole::collectives
