// Kernels that exist for fp32 only, since nets are quantized in fp32. Private to src/backend/cuda.
#pragma once

#include <algorithm>
#include <memory>

#include "src/backend/cuda/kernels/element.h"

namespace carole::cuda {

// A function for KernelRow::supports: whether all tensors are fp32.
inline bool IsFp32(const OpSpec& spec, const Device&) {
  const auto fits = [](const TensorSpec& t) { return !t.present || t.dtype == DType::kF32; };
  return std::ranges::all_of(spec.inputs, fits) && std::ranges::all_of(spec.outputs, fits);
}

// Makes the kernel K<N> for an operation, with N the pack size that divides `neighbors`.
template <template <int> class K>
std::unique_ptr<Kernel> MakePackedFloats(const OpSpec& spec, const Device& device,
                                         int64_t neighbors) {
  return WithPacksOf<float>(neighbors, [&]<typename T, int N>() -> std::unique_ptr<Kernel> {
    return std::make_unique<K<N>>(spec, device);
  });
}

}  // namespace carole::cuda
