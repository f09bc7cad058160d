// Elements of activations: float, __nv_bfloat16 or __half. All arithmetic is in fp32.
//
// A thread reads and writes packs: N neighboring elements of 16 bytes in all. If their number is
// not a multiple of that, 16-bit elements come in pairs or alone, and floats alone. A pack has the
// same format in registers as in memory, until it is converted to Floats. Private to
// src/backend/cuda.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstring>
#include <memory>
#include <type_traits>

#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// The number of elements of 16 bytes.
template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

// N neighboring elements as they lie in memory. They are stored as 32-bit words where possible,
// since nvcc would use a register for each 16-bit element.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  using Word = std::conditional_t<sizeof(T) < 4 && N * sizeof(T) % 4 == 0, uint32_t, T>;
  Word words[N * sizeof(T) / sizeof(Word)];
};

// The elements of a pack, one by one.
template <typename T, int N>
struct Elements {
  T values[N];

  Elements() = default;
  __device__ explicit Elements(const Pack<T, N>& pack) { memcpy(values, &pack, sizeof(values)); }
  __device__ Pack<T, N> ToPack() const {
    Pack<T, N> pack;
    memcpy(&pack, values, sizeof(values));
    return pack;
  }
};

template <int N>
struct Floats {
  float values[N];

  __device__ float& operator[](int i) { return values[i]; }
  __device__ float operator[](int i) const { return values[i]; }
};

template <int N, typename T>
__device__ Pack<T, N> ReadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <typename T, int N>
__device__ void WritePack(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) < sizeof(uint2)) {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  } else {  // explicit vector stores: nvcc stores some structs word by word
    using Vector = std::conditional_t<sizeof(pack) == sizeof(uint2), uint2, uint4>;
    constexpr size_t kVectors = sizeof(pack) / sizeof(Vector);
    Vector vectors[kVectors];
    memcpy(vectors, &pack, sizeof(pack));
    for (size_t i = 0; i < kVectors; ++i) __stwb(reinterpret_cast<Vector*>(to) + i, vectors[i]);
  }
}

template <typename T, int N>
__device__ Floats<N> ToFloats(const Pack<T, N>& pack) {
  Floats<N> floats;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    // A bf16 is the upper half of a float. nvcc would first move every second one to the lower
    // half.
    for (int i = 0; i < N; ++i) {
      const uint32_t word = pack.words[i / 2], bits = i % 2 == 0 ? word << 16 : word & 0xFFFF0000;
      memcpy(&floats[i], &bits, sizeof(bits));
    }
  } else {
    const Elements<T, N> elements(pack);
    for (int i = 0; i < N; ++i) floats[i] = static_cast<float>(elements.values[i]);
  }
  return floats;
}

template <int N, typename T>
__device__ Floats<N> Load(const T* from) {
  return ToFloats(ReadPack<N>(from));
}

template <int N, typename T>
__device__ void Store(T* to, const Floats<N>& floats) {
  Elements<T, N> elements;
  for (int i = 0; i < N; ++i) elements.values[i] = static_cast<T>(floats[i]);
  WritePack(to, elements.ToPack());
}

// Limits x to [low, high]; NaN stays NaN. Two separate selections: for a nested one, nvcc branches.
__device__ inline float Clamp(float x, float low, float high) {
  const float floored = x < low ? low : x;
  return high < floored ? high : floored;
}

// Calls f.operator()<T>() with the C++ type of fp32, bf16 or fp16.
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

// Calls f.operator()<T, N>() with the largest pack size N that divides `neighbors`, the number of
// neighboring elements.
template <typename T, typename F>
auto WithPacksOf(int64_t neighbors, F f) {
  if (neighbors % kPack<T> == 0) return f.template operator()<T, kPack<T>>();
  if constexpr (sizeof(T) == 2) {
    if (neighbors % 2 == 0) return f.template operator()<T, 2>();
  }
  return f.template operator()<T, 1>();
}
template <typename F>
auto WithPacks(DType dtype, int64_t neighbors, F f) {
  return WithType(dtype, [&]<typename T>() { return WithPacksOf<T>(neighbors, f); });
}

// Make the kernel K<T> or K<T, N> for an operation, with T its element type and N the pack size
// that divides `neighbors`.
template <template <typename> class K>
std::unique_ptr<Kernel> MakeTyped(const OpSpec& spec, const Device& device) {
  return WithType(ElementType(spec), [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<K<T>>(spec, device);
  });
}
template <template <typename, int> class K>
std::unique_ptr<Kernel> MakePacked(const OpSpec& spec, const Device& device, int64_t neighbors) {
  return WithPacks(ElementType(spec), neighbors,
                   [&]<typename T, int N>() -> std::unique_ptr<Kernel> {
                     return std::make_unique<K<T, N>>(spec, device);
                   });
}

}  // namespace carole::cuda
