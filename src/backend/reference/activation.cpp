// ReLU and hard activations, and their gradients.
#include <algorithm>

#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/relu.h"
#include "src/backend/reference/math/bias.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
T Top(const OpSpec& spec) {
  return static_cast<T>(ReluUpperBound(spec.attributes.as<ReluAttributes>().ceiling));
}

template <typename T>
class Relu : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T* x = in<T>(0);
    T* y = out<T>(0);
    const T top = Top<T>(spec_);
    ForElements(threads_, in_shape(0).size(),
                [&](int64_t i) { y[i] = std::min(std::max(x[i], T{0}), top); });
  }
};

template <typename T>
class ReluBackward : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T* dy = in<T>(0);
    const T* y = in<T>(1);
    T* dx = out<T>(0);
    const T top = Top<T>(spec_);
    ForElements(threads_, in_shape(0).size(),
                [&](int64_t i) { dx[i] = y[i] > T{0} && y[i] < top ? dy[i] : T{0}; });
    if (T* db = out<T>(kPosition<ReluBackwardOutputs>.db)) {
      const int64_t channels = out_shape(1)[0];
      ColumnSums(threads_, dx, in_shape(0).size() / channels, channels, db);
    }
  }
};

template <typename T>
class HardActivation : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<HardActivationAttributes>();
    const T factor = static_cast<T>(a.factor());
    const T* x = in<T>(0);
    T* y = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) {
      const T gate = std::clamp(x[i] + T{3}, T{0}, T{6});
      y[i] = (a.swish ? x[i] * gate : gate) * factor;
    });
  }
};

template <typename T>
class HardActivationBackward : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<HardActivationAttributes>();
    const T factor = static_cast<T>(a.factor());
    const T* dy = in<T>(0);
    const T* x = in<T>(1);
    T* dx = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) {
      const T shifted = x[i] + T{3};
      const T slope = shifted > T{0} && shifted < T{6} ? T{1} : T{0};
      const T gate = std::clamp(shifted, T{0}, T{6});
      dx[i] = dy[i] * factor * (a.swish ? gate + x[i] * slope : slope);
    });
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kRelu, .make = MakeTyped<Relu>},
    {.kind = op::kReluBackward, .make = MakeTyped<ReluBackward>},
    {.kind = op::kHardActivation, .make = MakeTyped<HardActivation>},
    {.kind = op::kHardActivationBackward, .make = MakeTyped<HardActivationBackward>},
};

}  // namespace

KernelRows ActivationKernels() { return kRows; }

}  // namespace carole::reference
