// GELU and its gradient.
#include "src/backend/ops/gelu.h"

#include <cmath>
#include <numbers>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

// The factor g(x) of y = x * g(x), and its derivative.
struct Gate {
  double value, slope;
};

Gate GateOf(const GeluAttributes& a, double x) {
  if (a.tanh) {
    const double u = a.kSqrtOf2OverPi * (x + a.kCubic * x * x * x);
    const double t = std::tanh(u), du = a.kSqrtOf2OverPi * (1 + 3 * a.kCubic * x * x);
    return {.value = 0.5 * (1 + t), .slope = 0.5 * (1 - t * t) * du};
  }
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  return {.value = 0.5 * std::erfc(-x / std::numbers::sqrt2), .slope = density};
}

template <typename T>
class Gelu : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<GeluAttributes>();
    const T* x = in<T>(0);
    T* y = out<T>(0);
    ForElements(threads_, in_shape(0).size(),
                [&](int64_t i) { y[i] = static_cast<T>(x[i] * GateOf(a, x[i]).value); });
  }
};

template <typename T>
class GeluBackward : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<GeluAttributes>();
    const T *dy = in<T>(0), *x = in<T>(1);
    T* dx = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) {
      const Gate gate = GateOf(a, x[i]);
      dx[i] = static_cast<T>(dy[i] * (gate.value + x[i] * gate.slope));
    });
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kGelu, .make = MakeTyped<Gelu>},
    {.kind = op::kGeluBackward, .make = MakeTyped<GeluBackward>},
};

}  // namespace

KernelRows GeluKernels() { return kRows; }

}  // namespace carole::reference
