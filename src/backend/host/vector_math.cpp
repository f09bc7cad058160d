#include "src/backend/host/vector_math.h"

#include "src/core/simd.h"

namespace carole::host {

#define CAROLE_DECLARE(level)                                           \
  namespace level {                                                     \
  UpdateFunction<float> FindFloat(int rule);                            \
  UpdateFunction<double> FindDouble(int rule);                          \
  UpdateFunction<float> FindFloatDirection(int rule);                   \
  UpdateFunction<double> FindDoubleDirection(int rule);                 \
  double Squares(const float* x, int64_t n);                            \
  double Squares(const double* x, int64_t n);                           \
  void Add(float* to, const float* from, int64_t n);                    \
  void Add(double* to, const double* from, int64_t n);                  \
  void Scale(float factor, float* to, int64_t n);                       \
  void Scale(double factor, double* to, int64_t n);                     \
  void Average(float rest, float* to, const float* from, int64_t n);    \
  void Average(double rest, double* to, const double* from, int64_t n); \
  uint64_t Hashes(const float* values, int64_t n);                      \
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

template <typename T>
void AddTo(T* to, const T* from, int64_t count) {
  using Function = void (*)(T*, const T*, int64_t);
  PickSimd<Function>(simd_v2::Add, simd_v3::Add, simd_v4::Add)(to, from, count);
}

template <typename T>
void ScaleBy(T factor, T* to, int64_t count) {
  using Function = void (*)(T, T*, int64_t);
  PickSimd<Function>(simd_v2::Scale, simd_v3::Scale, simd_v4::Scale)(factor, to, count);
}

template <typename T>
void MoveAverage(T one_minus_decay, T* to, const T* from, int64_t count) {
  using Function = void (*)(T, T*, const T*, int64_t);
  PickSimd<Function>(simd_v2::Average, simd_v3::Average, simd_v4::Average)(one_minus_decay, to,
                                                                           from, count);
}

uint64_t SumOfHashes(const float* values, int64_t count) {
  return PickSimd(simd_v2::Hashes, simd_v3::Hashes, simd_v4::Hashes)(values, count);
}

template void AddTo(float*, const float*, int64_t);
template void AddTo(double*, const double*, int64_t);
template void ScaleBy(float, float*, int64_t);
template void ScaleBy(double, double*, int64_t);
template void MoveAverage(float, float*, const float*, int64_t);
template void MoveAverage(double, double*, const double*, int64_t);

}  // namespace carole::host
