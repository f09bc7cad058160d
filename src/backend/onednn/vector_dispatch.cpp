#include "src/backend/onednn/vector.h"
#include "src/core/simd.h"

namespace carole::onednn {

namespace simd_v2 {
extern const VectorKernels kTable;
}
namespace simd_v3 {
extern const VectorKernels kTable;
}
namespace simd_v4 {
extern const VectorKernels kTable;
}

const VectorKernels& Vectors() {
  static const VectorKernels* const table =
      PickSimd(&simd_v2::kTable, &simd_v3::kTable, &simd_v4::kTable);
  return *table;
}

}  // namespace carole::onednn
