#include "src/backend/host/vector_math.h"

#include "src/core/simd.h"

namespace carole::host {

#define CAROLE_DECLARE(level)                           \
  namespace level {                                     \
  UpdateFunction<float> FindFloat(int rule);            \
  UpdateFunction<double> FindDouble(int rule);          \
  UpdateFunction<float> FindFloatDirection(int rule);   \
  UpdateFunction<double> FindDoubleDirection(int rule); \
  double Squares(const float* x, int64_t n);            \
  double Squares(const double* x, int64_t n);           \
  }
CAROLE_DECLARE(simd_v2)
CAROLE_DECLARE(simd_v3)
CAROLE_DECLARE(simd_v4)
#undef CAROLE_DECLARE

template <>
UpdateFunction<float> FindUpdate(int rule) {
  return PickSimd(simd_v2::FindFloat, simd_v3::FindFloat, simd_v4::FindFloat)(rule);
}

template <>
UpdateFunction<double> FindUpdate(int rule) {
  return PickSimd(simd_v2::FindDouble, simd_v3::FindDouble, simd_v4::FindDouble)(rule);
}

template <>
UpdateFunction<float> FindDirection(int rule) {
  return PickSimd(simd_v2::FindFloatDirection, simd_v3::FindFloatDirection,
                  simd_v4::FindFloatDirection)(rule);
}

template <>
UpdateFunction<double> FindDirection(int rule) {
  return PickSimd(simd_v2::FindDoubleDirection, simd_v3::FindDoubleDirection,
                  simd_v4::FindDoubleDirection)(rule);
}

double SumOfSquares(const float* values, int64_t count) {
  using Function = double (*)(const float*, int64_t);
  return PickSimd<Function>(simd_v2::Squares, simd_v3::Squares, simd_v4::Squares)(values, count);
}

double SumOfSquares(const double* values, int64_t count) {
  using Function = double (*)(const double*, int64_t);
  return PickSimd<Function>(simd_v2::Squares, simd_v3::Squares, simd_v4::Squares)(values, count);
}

}  // namespace carole::host
