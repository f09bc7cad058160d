// ReLU and hard activations, and their gradients.
#include <algorithm>

#include "src/backend/reference/bias.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
T Top(const OpSpec& spec) {
  return static_cast<T>(ReluUpperBound(spec.attributes_as<ReluAttributes>().ceiling));
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
    if (T* db = out<T>(ReluBackwardIndices::kDb)) {
      const int64_t channels = out_shape(1)[0];
      ColumnSums(threads_, dx, in_shape(0).size() / channels, channels, db);
    }
  }
};

template <typename T>
class Activation : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes_as<HardActivationAttributes>();
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
class ActivationBackward : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes_as<HardActivationAttributes>();
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

}  // namespace

std::unique_ptr<Kernel> MakeRelu(const OpSpec& spec, int threads) {
  return MakeTyped<Relu>(spec, threads);
}
std::unique_ptr<Kernel> MakeReluBackward(const OpSpec& spec, int threads) {
  return MakeTyped<ReluBackward>(spec, threads);
}
std::unique_ptr<Kernel> MakeActivation(const OpSpec& spec, int threads) {
  return MakeTyped<Activation>(spec, threads);
}
std::unique_ptr<Kernel> MakeActivationBackward(const OpSpec& spec, int threads) {
  return MakeTyped<ActivationBackward>(spec, threads);
}

}  // namespace carole::reference
