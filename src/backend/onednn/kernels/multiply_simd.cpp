// Multiplication of two tensors. The loop is compiled once for each x86-64 level, the kernel only
// once.
#ifdef CAROLE_SIMD_NAMESPACE

#include "src/backend/onednn/vector/vector_math.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {

template <typename T>
void Multiply(const T* a, const T* b, T* y, int64_t count) {
  Map(a, b, y, count, [](auto v, auto w) { return v * w; });
}

template void Multiply(const float*, const float*, float*, int64_t);
template void Multiply(const Bf16*, const Bf16*, Bf16*, int64_t);

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE

#else

#include "src/backend/onednn/kernels/elementwise.h"
#include "src/backend/ops/multiply.h"
#include "src/core/simd.h"

namespace carole::onednn {

CAROLE_EACH_SIMD_LEVEL(template <typename T>
                       void Multiply(const T* a, const T* b, T* y, int64_t count);)

namespace {

template <typename T>
class Multiply : public ElementwiseKernel<T> {
 public:
  using ElementwiseKernel<T>::ElementwiseKernel;

 private:
  void Compute(int64_t begin, int64_t count) const override {
    static const auto loop =
        PickSimd(simd_v2::Multiply<T>, simd_v3::Multiply<T>, simd_v4::Multiply<T>);
    loop(this->x(0, begin), this->x(1, begin), this->y(begin), count);
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kMultiply, .make = MakeTyped<Multiply>},
};

}  // namespace

KernelRows MultiplyKernels() { return kRows; }

}  // namespace carole::onednn

#endif
