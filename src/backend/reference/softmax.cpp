// Softmax, and cross entropy of the softmax, over the rows of logits (N,K). The maximum of each row
// is subtracted first, so that no exponential overflows.
#include "src/backend/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
class Softmax : public ReferenceKernel {
 public:
  using ReferenceKernel::ReferenceKernel;

  void Run(const RunContext&) override {
    const int64_t k = in_shape(0)[1];
    ForIndices(threads_, in_shape(0)[0], [&](int64_t row) {
      const T* x = in<T>(0) + row * k;
      T* y = out<T>(0) + row * k;
      const double top = *std::max_element(x, x + k);
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += std::exp(x[i] - top);
      for (int64_t i = 0; i < k; ++i) y[i] = static_cast<T>(std::exp(x[i] - top) / sum);
    });
  }
};

template <typename T>
class SoftmaxCrossEntropy : public ReferenceKernel {
 public:
  SoftmaxCrossEntropy(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        a_(spec.attributes.as<SoftmaxCrossEntropyAttributes>()),
        n_(in_shape(0)[0]),
        k_(in_shape(0)[1]) {
    workspace_bytes_ = sizeof(double) * n_;
  }

  void Run(const RunContext&) override {
    if (spec_.inputs[1].dtype == DType::kI32) {
      CheckLabels();
      const int32_t* labels = in<int32_t>(1);
      RunRows([=](int64_t row, int64_t i) { return i == labels[row] ? 1.0 : 0.0; });
    } else {
      const T* labels = in<T>(1);
      RunRows([labels, k = k_](int64_t row, int64_t i) -> double { return labels[row * k + i]; });
    }
  }

 private:
  void CheckLabels() const {
    const int32_t* labels = in<int32_t>(1);
    const T* weights = in<T>(2);
    for (int64_t i = 0; i < n_; ++i) {
      CAROLE_CHECK(weights[i] == T{0} || (labels[i] >= 0 && labels[i] < k_),
                   "label {} of row {} is not one of {} classes", labels[i], i, k_);
    }
  }

  // `label_of(row, i)`: the probability of class i that the labels give to this row.
  template <typename LabelOf>
  void RunRows(const LabelOf& label_of) {
    const T* weights = in<T>(2);
    double* losses = reinterpret_cast<double*>(memory_.workspace);
    ForIndices(threads_, n_, [&](int64_t row) {
      losses[row] = weights[row] == T{0} ? SkipRow(row)
                                         : RunRow(row, a_.scale * weights[row],
                                                  [&](int64_t i) { return label_of(row, i); });
    });
    double loss = 0;
    for (int64_t i = 0; i < n_; ++i) loss += losses[i];
    *out<T>(0) = static_cast<T>(loss);
  }

  double SkipRow(int64_t row) const {
    std::fill_n(out<T>(1) + row * k_, k_, T{0});
    return 0;
  }

  // Returns the row's part of the loss: sum_i -t_i log p_i with p = softmax(x). Its gradient is p -
  // t.
  template <typename LabelOf>
  double RunRow(int64_t row, double weight, const LabelOf& label_of) const {
    const T* x = in<T>(0) + row * k_;
    T* dx = out<T>(1) + row * k_;
    const double top = *std::max_element(x, x + k_);
    double sum = 0;
    for (int64_t i = 0; i < k_; ++i) sum += std::exp(x[i] - top);
    const double log_sum = top + std::log(sum);
    double loss = 0;
    for (int64_t i = 0; i < k_; ++i) {
      const double target =
          label_of(i) * (1 - a_.smoothing) + a_.smoothing / static_cast<double>(k_);
      loss += target * (log_sum - x[i]);
      dx[i] = static_cast<T>(weight * (std::exp(x[i] - log_sum) - target));
    }
    return weight * loss;
  }

  const SoftmaxCrossEntropyAttributes a_;
  const int64_t n_, k_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kSoftmax, .make = MakeTyped<Softmax>},
    {.kind = op::kSoftmaxCrossEntropy, .make = MakeTyped<SoftmaxCrossEntropy>},
};

}  // namespace

KernelRows SoftmaxKernels() { return kRows; }

}  // namespace carole::reference
