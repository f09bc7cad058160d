// GELU and its gradient. The loops are compiled once for each x86-64 level, the kernels only once.
#ifdef CAROLE_SIMD_NAMESPACE

#include "src/backend/onednn/vector/vector_math.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {
namespace {

constexpr float kFactor = 2 * 0.79788456080286536f;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715f;
constexpr float kDensityAt0 = 0.398942280401432678f;  // 1 / sqrt(2 pi)

// 2 u; (1 + tanh(u)) / 2 = sigmoid(2 u)
template <typename V>
V TwiceU(V x) {
  return kFactor * (x + kCubic * (x * x * x));
}

}  // namespace

template <typename T>
void Gelu(const T* x, T* y, int64_t count, bool tanh) {
  if (tanh) return Map(x, y, count, [](auto v) { return v * Sigmoid(TwiceU(v)); });
  Map(x, y, count, [](auto v) { return v * NormalDistribution(v); });
}

template <typename T>
void GeluBackward(const T* dy, const T* x, T* dx, int64_t count, bool tanh) {
  if (tanh) {
    return Map(dy, x, dx, count, [](auto d, auto v) {
      const auto e = Exp(-TwiceU(v)), gate = 1.0f / (1.0f + e);
      const auto slope = (e * gate) * gate;  // gate * (1 - gate), without its loss of digits
      return d * (gate + v * slope * (kFactor * (1.0f + 3 * kCubic * (v * v))));
    });
  }
  Map(dy, x, dx, count, [](auto d, auto v) {
    return d * (NormalDistribution(v) + v * (kDensityAt0 * Exp(-0.5f * (v * v))));
  });
}

template void Gelu(const float*, float*, int64_t, bool);
template void Gelu(const Bf16*, Bf16*, int64_t, bool);
template void GeluBackward(const float*, const float*, float*, int64_t, bool);
template void GeluBackward(const Bf16*, const Bf16*, Bf16*, int64_t, bool);

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE

#else

#include "src/backend/onednn/kernels/elementwise.h"
#include "src/backend/ops/gelu.h"
#include "src/core/simd.h"

namespace carole::onednn {

CAROLE_EACH_SIMD_LEVEL(template <typename T> void Gelu(const T* x, T* y, int64_t count, bool tanh);
                       template <typename T>
                       void GeluBackward(const T* dy, const T* x, T* dx, int64_t count, bool tanh);)

namespace {

template <typename T>
class Gelu : public ElementwiseKernel<T> {
 public:
  Gelu(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads), tanh_(spec.attributes.as<GeluAttributes>().tanh) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    static const auto loop = PickSimd(simd_v2::Gelu<T>, simd_v3::Gelu<T>, simd_v4::Gelu<T>);
    loop(this->x(0, begin), this->y(begin), count, tanh_);
  }

  const bool tanh_;
};

template <typename T>
class GeluBackward : public ElementwiseKernel<T> {
 public:
  GeluBackward(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads), tanh_(spec.attributes.as<GeluAttributes>().tanh) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    static const auto loop =
        PickSimd(simd_v2::GeluBackward<T>, simd_v3::GeluBackward<T>, simd_v4::GeluBackward<T>);
    loop(this->x(0, begin), this->x(1, begin), this->y(begin), count, tanh_);
  }

  const bool tanh_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kGelu, .make = MakeTyped<Gelu>},
    {.kind = op::kGeluBackward, .make = MakeTyped<GeluBackward>},
};

}  // namespace

KernelRows GeluKernels() { return kRows; }

}  // namespace carole::onednn

#endif
