// Activations and their gradients, sums, and multiplication by a constant.
#include "src/backend/onednn/kernels/elementwise.h"

#include "src/backend/onednn/vector/vector.h"
#include "src/backend/ops/add.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/relu.h"

namespace carole::onednn {
namespace {

template <typename T>
class Relu : public ElementwiseKernel<T> {
 public:
  Relu(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads),
        ceiling_(static_cast<float>(spec.attributes.as<ReluAttributes>().ceiling)) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    Vectors<T>().relu(this->x(0, begin), this->y(begin), count, ceiling_);
  }

  const float ceiling_;
};

template <typename T>
class ReluBackward : public ElementwiseKernel<T> {
 public:
  ReluBackward(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads),
        ceiling_(static_cast<float>(spec.attributes.as<ReluAttributes>().ceiling)) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    Vectors<T>().relu_backward(this->x(0, begin), this->x(1, begin), this->y(begin), count,
                               ceiling_);
  }

  const float ceiling_;
};

// Hard swish or hard sigmoid. The hard sigmoid of 0 is 1/2. Its plain layout costs nothing: the
// gate's activations have one pixel, so they are plain anyway.
template <typename T>
class HardActivation : public ElementwiseKernel<T> {
 public:
  HardActivation(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads, spec.attributes.as<HardActivationAttributes>().swish),
        attributes_(spec.attributes.as<HardActivationAttributes>()) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    Vectors<T>().hard(this->x(0, begin), this->y(begin), count, attributes_.swish,
                      static_cast<float>(attributes_.factor()));
  }

  const HardActivationAttributes attributes_;
};

template <typename T>
class HardActivationBackward : public ElementwiseKernel<T> {
 public:
  HardActivationBackward(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads, spec.attributes.as<HardActivationAttributes>().swish),
        attributes_(spec.attributes.as<HardActivationAttributes>()) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    Vectors<T>().hard_backward(this->x(0, begin), this->x(1, begin), this->y(begin), count,
                               attributes_.swish, static_cast<float>(attributes_.factor()));
  }

  const HardActivationAttributes attributes_;
};

template <typename T>
class Scale : public ElementwiseKernel<T> {
 public:
  Scale(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads),
        factor_(static_cast<float>(spec.attributes.as<ScaleAttributes>().factor)) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    Vectors<T>().scale(this->x(0, begin), this->y(begin), count, factor_);
  }

  const float factor_;
};

template <typename T>
class ScaledAdd : public ElementwiseKernel<T> {
 public:
  ScaledAdd(const OpSpec& spec, int threads)
      : ElementwiseKernel<T>(spec, threads),
        factor_(static_cast<float>(spec.attributes.as<ScaleAttributes>().factor)) {}

 private:
  void Compute(int64_t begin, int64_t count) const override {
    Vectors<T>().scaled_add(this->x(0, begin), this->x(1, begin), this->y(begin), count, factor_);
  }

  const float factor_;
};

template <typename T>
class Add : public ElementwiseKernel<T> {
 public:
  using ElementwiseKernel<T>::ElementwiseKernel;

 private:
  void Compute(int64_t begin, int64_t count) const override {
    T* const sum = this->y(begin);
    Vectors<T>().add(this->x(0, begin), this->x(1, begin), sum, count);
    for (size_t i = 2; i < this->num_inputs(); ++i)
      Vectors<T>().add(sum, this->x(i, begin), sum, count);
  }
};

// The gradient of a bias in op::kReluBackward is of no use here: oneDNN computes it together with
// the gradient of the filter.
bool HasNoBiasGradient(const OpSpec& spec, const Cpu& cpu) {
  return SupportsTypes(spec, cpu) && !IsPresent(spec.outputs, kPosition<ReluBackwardOutputs>.db);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kRelu, .make = MakeTyped<Relu>},
    {.kind = op::kReluBackward, .make = MakeTyped<ReluBackward>, .supports = HasNoBiasGradient},
    {.kind = op::kHardActivation, .make = MakeTyped<HardActivation>},
    {.kind = op::kHardActivationBackward, .make = MakeTyped<HardActivationBackward>},
    {.kind = op::kAdd, .make = MakeTyped<Add>},
    {.kind = op::kScaledAdd, .make = MakeTyped<ScaledAdd>},
    {.kind = op::kScale, .make = MakeTyped<Scale>},
};

}  // namespace

KernelRows ElementwiseKernels() { return kRows; }

}  // namespace carole::onednn
