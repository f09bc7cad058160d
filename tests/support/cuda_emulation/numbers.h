// Reading, writing and multiplying elements of any type, for the emulated libraries of this folder.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "src/core/float16.h"

enum class EmulatedType { kF32, kF16, kBF16 };

inline float EmulatedGet(EmulatedType type, const void* data, int64_t index) {
  if (type == EmulatedType::kBF16) return static_cast<const carole::Bf16*>(data)[index];
  if (type == EmulatedType::kF16) return static_cast<const carole::Fp16*>(data)[index];
  return static_cast<const float*>(data)[index];
}
inline void EmulatedPut(EmulatedType type, void* data, int64_t index, float value) {
  if (type == EmulatedType::kBF16) {
    static_cast<carole::Bf16*>(data)[index] = carole::Bf16(value);
  } else if (type == EmulatedType::kF16) {
    static_cast<carole::Fp16*>(data)[index] = carole::Fp16(value);
  } else {
    static_cast<float*>(data)[index] = value;
  }
}

// Rounds as tensor cores round fp32 operands to TF32.
inline void EmulatedRoundToTf32(std::vector<double>& numbers) {
  for (double& number : numbers) {
    auto bits = std::bit_cast<uint32_t>(static_cast<float>(number));
    bits = (bits + 0x0FFF + ((bits >> 13) & 1)) & ~uint32_t{0x1FFF};
    number = std::bit_cast<float>(bits);
  }
}

// Most of the time is spent here, so the alignment checks, which are meant for kernels, are off.
__attribute__((no_sanitize("alignment"))) inline double EmulatedDot(const double* a,
                                                                    const double* b,
                                                                    int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}
// to += factor * from
__attribute__((no_sanitize("alignment"))) inline void EmulatedAddScaled(double* to, double factor,
                                                                        const double* from,
                                                                        int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}
