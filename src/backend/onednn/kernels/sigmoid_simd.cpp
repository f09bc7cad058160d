// Sigmoid and its gradient. The loops are compiled once for each x86-64 level, the kernels only
// once.
#ifdef CAROLE_SIMD_NAMESPACE

#include "src/backend/onednn/vector/vector_math.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {

template <typename T>
void Sigmoid(const T* x, T* y, int64_t count) {
  Map(x, y, count, [](auto v) { return Sigmoid(v); });
}

template <typename T>
void SigmoidBackward(const T* dy, const T* y, T* dx, int64_t count) {
  Map(dy, y, dx, count, [](auto d, auto v) { return d * (v * (1.0f - v)); });
}

template void Sigmoid(const float*, float*, int64_t);
template void Sigmoid(const Bf16*, Bf16*, int64_t);
template void SigmoidBackward(const float*, const float*, float*, int64_t);
template void SigmoidBackward(const Bf16*, const Bf16*, Bf16*, int64_t);

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE

#else

#include "src/backend/onednn/kernels/elementwise.h"
#include "src/backend/ops/sigmoid.h"
#include "src/core/simd.h"

namespace carole::onednn {

CAROLE_EACH_SIMD_LEVEL(template <typename T> void Sigmoid(const T* x, T* y, int64_t count);
                       template <typename T>
                       void SigmoidBackward(const T* dy, const T* y, T* dx, int64_t count);)

namespace {

template <typename T>
class Sigmoid : public ElementwiseKernel<T> {
 public:
  // The sigmoid of 0 is 1/2.
  Sigmoid(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads, /*keeps_zero=*/false) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    static const auto loop =
        PickSimd(simd_v2::Sigmoid<T>, simd_v3::Sigmoid<T>, simd_v4::Sigmoid<T>);
    loop(this->x(0, begin), this->y(begin), count);
  }
};

template <typename T>
class SigmoidBackward : public ElementwiseKernel<T> {
 public:
  using ElementwiseKernel<T>::ElementwiseKernel;

 private:
  void Compute(int64_t begin, int64_t count) const override {
    static const auto loop = PickSimd(simd_v2::SigmoidBackward<T>, simd_v3::SigmoidBackward<T>,
                                      simd_v4::SigmoidBackward<T>);
    loop(this->x(0, begin), this->x(1, begin), this->y(begin), count);
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kSigmoid, .make = MakeTyped<Sigmoid>},
    {.kind = op::kSigmoidBackward, .make = MakeTyped<SigmoidBackward>},
};

}  // namespace

KernelRows SigmoidKernels() { return kRows; }

}  // namespace carole::onednn

#endif
