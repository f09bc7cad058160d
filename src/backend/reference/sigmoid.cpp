// Sigmoid and its gradient.
#include "src/backend/ops/sigmoid.h"

#include <cmath>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }

template <typename T>
class Sigmoid : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T* x = in<T>(0);
    T* y = out<T>(0);
    ForElements(threads_, in_shape(0).size(),
                [&](int64_t i) { y[i] = static_cast<T>(SigmoidOf(x[i])); });
  }
};

template <typename T>
class SigmoidBackward : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T *dy = in<T>(0), *y = in<T>(1);
    T* dx = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) {
      const double s = y[i];
      dx[i] = static_cast<T>(dy[i] * s * (1 - s));
    });
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kSigmoid, .make = MakeTyped<Sigmoid>},
    {.kind = op::kSigmoidBackward, .make = MakeTyped<SigmoidBackward>},
};

}  // namespace

KernelRows SigmoidKernels() { return kRows; }

}  // namespace carole::reference
