// Picks the kernels of vector.h for this CPU.
#include "src/backend/onednn/vector/vector.h"
#include "src/core/simd.h"

namespace carole::onednn {

CAROLE_EACH_SIMD_LEVEL(extern const VectorKernels<float> kFloats;
                       extern const VectorKernels<Bf16> kBf16s;)

template <>
const VectorKernels<float>& Vectors() {
  static const VectorKernels<float>* const table =
      PickSimd(&simd_v2::kFloats, &simd_v3::kFloats, &simd_v4::kFloats);
  return *table;
}

template <>
const VectorKernels<Bf16>& Vectors() {
  static const VectorKernels<Bf16>* const table =
      PickSimd(&simd_v2::kBf16s, &simd_v3::kBf16s, &simd_v4::kBf16s);
  return *table;
}

}  // namespace carole::onednn
