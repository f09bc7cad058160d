// SiLU and its gradient. The loops are compiled once for each x86-64 level, the kernels only once.
#ifdef CAROLE_SIMD_NAMESPACE

#include "src/backend/onednn/vector/vector_math.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {

template <typename T>
void Silu(const T* x, T* y, int64_t count) {
  Map(x, y, count, [](auto v) { return v * Sigmoid(v); });
}

template <typename T>
void SiluBackward(const T* dy, const T* x, T* dx, int64_t count) {
  Map(dy, x, dx, count, [](auto d, auto v) {
    const auto e = Exp(-v), s = 1.0f / (1.0f + e);
    return d * (s + v * ((e * s) * s));  // 1 - s = e * s
  });
}

template void Silu(const float*, float*, int64_t);
template void Silu(const Bf16*, Bf16*, int64_t);
template void SiluBackward(const float*, const float*, float*, int64_t);
template void SiluBackward(const Bf16*, const Bf16*, Bf16*, int64_t);

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE

#else

#include "src/backend/onednn/kernels/elementwise.h"
#include "src/backend/ops/silu.h"
#include "src/core/simd.h"

namespace carole::onednn {

CAROLE_EACH_SIMD_LEVEL(template <typename T> void Silu(const T* x, T* y, int64_t count);
                       template <typename T>
                       void SiluBackward(const T* dy, const T* x, T* dx, int64_t count);)

namespace {

template <typename T>
class Silu : public ElementwiseKernel<T> {
 public:
  using ElementwiseKernel<T>::ElementwiseKernel;

 private:
  void Compute(int64_t begin, int64_t count) const override {
    static const auto loop = PickSimd(simd_v2::Silu<T>, simd_v3::Silu<T>, simd_v4::Silu<T>);
    loop(this->x(0, begin), this->y(begin), count);
  }
};

template <typename T>
class SiluBackward : public ElementwiseKernel<T> {
 public:
  using ElementwiseKernel<T>::ElementwiseKernel;

 private:
  void Compute(int64_t begin, int64_t count) const override {
    static const auto loop =
        PickSimd(simd_v2::SiluBackward<T>, simd_v3::SiluBackward<T>, simd_v4::SiluBackward<T>);
    loop(this->x(0, begin), this->x(1, begin), this->y(begin), count);
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kSilu, .make = MakeTyped<Silu>},
    {.kind = op::kSiluBackward, .make = MakeTyped<SiluBackward>},
};

}  // namespace

KernelRows SiluKernels() { return kRows; }

}  // namespace carole::onednn

#endif
