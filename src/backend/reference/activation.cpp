#include <algorithm>
#include <limits>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
T Ceiling(const OpSpec& spec) {
  const double ceiling = spec.attributes_as<ReluAttributes>().ceiling;
  return ceiling > 0 ? static_cast<T>(ceiling) : std::numeric_limits<T>::infinity();
}

template <typename T>
class Relu : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T* x = in<T>(0);
    T* y = out<T>(0);
    const T ceiling = Ceiling<T>(spec_);
    ParallelRanges(threads_, in_shape(0).size(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = std::min(std::max(x[i], T{0}), ceiling);
    });
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
    const T ceiling = Ceiling<T>(spec_);
    ParallelRanges(threads_, in_shape(0).size(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dx[i] = y[i] > T{0} && y[i] < ceiling ? dy[i] : T{0};
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

}  // namespace carole::reference
