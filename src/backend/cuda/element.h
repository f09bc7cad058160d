// Elements of activations: float, __nv_bfloat16 or __half. All arithmetic is in fp32. A thread
// takes some neighbours at once, 16 bytes where their number can be divided so. Private to the
// folder.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <memory>

#include "src/backend/cuda/cuda.h"

namespace carole::cuda {

template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

// Neighbours in memory.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T values[N];
};

template <int N>
struct Floats {
  float values[N];

  __device__ float& operator[](int i) { return values[i]; }
  __device__ float operator[](int i) const { return values[i]; }
};

template <int N, typename T>
__device__ Floats<N> Load(const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
  Floats<N> floats;
  for (int i = 0; i < N; ++i) floats[i] = static_cast<float>(pack.values[i]);
  return floats;
}

template <int N, typename T>
__device__ void Store(T* to, const Floats<N>& floats) {
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) pack.values[i] = static_cast<T>(floats[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// Calls f.operator()<T>() with the type of these elements, which are a float's.
template <typename F>
auto WithType(DType dtype, F f) {
  switch (dtype) {
    case DType::kBF16:
      return f.template operator()<__nv_bfloat16>();
    case DType::kF16:
      return f.template operator()<__half>();
    default:
      return f.template operator()<float>();
  }
}

// Calls f.operator()<T, N>() for elements in packs of N, of which `neighbours` are a whole number.
template <typename F>
auto WithPacks(DType dtype, int64_t neighbours, F f) {
  return WithType(dtype, [&]<typename T>() {
    if (neighbours % kPack<T> == 0) return f.template operator()<T, kPack<T>>();
    return f.template operator()<T, 1>();
  });
}

// The kernels K<T> and K<T, N> for the operation.
template <template <typename> class K>
std::unique_ptr<Kernel> MakeTyped(const OpSpec& spec, const Device& device) {
  return WithType(ElementType(spec), [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<K<T>>(spec, device);
  });
}
template <template <typename, int> class K>
std::unique_ptr<Kernel> MakePacked(const OpSpec& spec, const Device& device, int64_t neighbours) {
  return WithPacks(ElementType(spec), neighbours,
                   [&]<typename T, int N>() -> std::unique_ptr<Kernel> {
                     return std::make_unique<K<T, N>>(spec, device);
                   });
}

}  // namespace carole::cuda
