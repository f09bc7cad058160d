// Softmax, and softmax with cross entropy and its gradient in one pass. The tensors are small, so
// summing in double costs nothing.
#include "src/backend/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "src/backend/onednn/kernels/onednn.h"

namespace carole::onednn {
namespace {

// Returns the largest element and the logarithm of the sum of exp(x - largest).
std::pair<double, double> LogSum(const float* x, int64_t count) {
  const double top = *std::max_element(x, x + count);
  double sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += std::exp(x[k] - top);
  return {top, std::log(sum)};
}

class Softmax : public Kernel {
 public:
  explicit Softmax(const OpSpec&) { input_layouts_ = output_layouts_ = {Layout::RowMajor()}; }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    const int64_t rows = memory_.inputs[0].shape[0], classes = memory_.inputs[0].shape[1];
    for (int64_t n = 0; n < rows; ++n) {
      const float* x = memory_.inputs[0].as<float>() + n * classes;
      float* y = memory_.outputs[0].as<float>() + n * classes;
      const auto [top, log_sum] = LogSum(x, classes);
      for (int64_t k = 0; k < classes; ++k)
        y[k] = static_cast<float>(std::exp(x[k] - top - log_sum));
    }
  }

 private:
  KernelMemory memory_;
};

class SoftmaxCrossEntropy : public Kernel {
 public:
  explicit SoftmaxCrossEntropy(const OpSpec& spec)
      : attributes_(spec.attributes.as<SoftmaxCrossEntropyAttributes>()) {
    input_layouts_ = {Layout::RowMajor(), Layout::RowMajor(), Layout::RowMajor()};
    output_layouts_ = {Layout::RowMajor(), Layout::RowMajor()};
  }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    const int64_t rows = memory_.inputs[0].shape[0], classes = memory_.inputs[0].shape[1];
    const float* weights = memory_.inputs[2].as<float>();
    const Tensor& labels = memory_.inputs[1];
    double loss = 0;
    for (int64_t n = 0; n < rows; ++n) {
      const float* x = memory_.inputs[0].as<float>() + n * classes;
      float* gradient = memory_.outputs[1].as<float>() + n * classes;
      const double weight = attributes_.scale * weights[n];
      if (weights[n] == 0) {
        std::fill_n(gradient, classes, 0.f);
      } else if (labels.dtype == DType::kI32) {
        const int32_t label = labels.as<int32_t>()[n];
        loss +=
            Row(x, weight, gradient, classes, [=](int64_t k) { return k == label ? 1.0 : 0.0; });
      } else {
        const float* soft = labels.as<float>() + n * classes;
        loss += Row(x, weight, gradient, classes, [=](int64_t k) -> double { return soft[k]; });
      }
    }
    *memory_.outputs[0].as<float>() = static_cast<float>(loss);
  }

 private:
  // `label_of(k)`: the probability of class k that the labels give to this row.
  template <typename LabelOf>
  double Row(const float* x, double weight, float* gradient, int64_t classes,
             const LabelOf& label_of) const {
    const auto [top, log_sum] = LogSum(x, classes);
    const double rest = attributes_.smoothing / static_cast<double>(classes);
    double loss = 0;
    for (int64_t k = 0; k < classes; ++k) {
      const double log_p = x[k] - top - log_sum;
      const double target = rest + label_of(k) * (1.0 - attributes_.smoothing);
      loss -= target * log_p;
      gradient[k] = static_cast<float>(weight * (std::exp(log_p) - target));
    }
    return weight * loss;
  }

  SoftmaxCrossEntropyAttributes attributes_;
  KernelMemory memory_;
};

std::unique_ptr<Kernel> MakeSoftmax(const OpSpec& spec, const Cpu&) {
  return std::make_unique<Softmax>(spec);
}

std::unique_ptr<Kernel> MakeSoftmaxCrossEntropy(const OpSpec& spec, const Cpu&) {
  return std::make_unique<SoftmaxCrossEntropy>(spec);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kSoftmax, .make = MakeSoftmax},
    {.kind = op::kSoftmaxCrossEntropy, .make = MakeSoftmaxCrossEntropy},
};

}  // namespace

KernelRows SoftmaxKernels() { return kRows; }

}  // namespace carole::onednn
