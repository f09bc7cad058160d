#include "src/optim/update.h"

#include "src/core/simd.h"

namespace carole::optim {

#define CAROLE_DECLARE(level)                   \
  namespace level {                             \
  UpdateFunction<float> FindFloat(Rule rule);   \
  UpdateFunction<double> FindDouble(Rule rule); \
  }
CAROLE_DECLARE(simd_v2)
CAROLE_DECLARE(simd_v3)
CAROLE_DECLARE(simd_v4)
#undef CAROLE_DECLARE

template <>
UpdateFunction<float> FindUpdate(Rule rule) {
  return PickSimd(simd_v2::FindFloat, simd_v3::FindFloat, simd_v4::FindFloat)(rule);
}

template <>
UpdateFunction<double> FindUpdate(Rule rule) {
  return PickSimd(simd_v2::FindDouble, simd_v3::FindDouble, simd_v4::FindDouble)(rule);
}

}  // namespace carole::optim
