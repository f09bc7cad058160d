// SiLU and its gradient.
#include "src/backend/ops/silu.h"

#include <cmath>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }

template <typename T>
class Silu : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T* x = in<T>(0);
    T* y = out<T>(0);
    ForElements(threads_, in_shape(0).size(),
                [&](int64_t i) { y[i] = static_cast<T>(x[i] * SigmoidOf(x[i])); });
  }
};

template <typename T>
class SiluBackward : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T *dy = in<T>(0), *x = in<T>(1);
    T* dx = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) {
      const double s = SigmoidOf(x[i]);
      dx[i] = static_cast<T>(dy[i] * s * (1 + x[i] * (1 - s)));
    });
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kSilu, .make = MakeTyped<Silu>},
    {.kind = op::kSiluBackward, .make = MakeTyped<SiluBackward>},
};

}  // namespace

KernelRows SiluKernels() { return kRows; }

}  // namespace carole::reference
