// Softmax and softmax cross entropy over the rows of logits (N,K), with one block of threads for
// each row. The maximum of a row is subtracted first, so that no exponential overflows.
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/ops/softmax.h"

namespace carole::cuda {
namespace {

struct Maximum {
  __device__ double operator()(double a, double b) const { return b > a ? b : a; }
};
struct Sum {
  __device__ double operator()(double a, double b) const { return a + b; }
};

// Combines the values of all threads of a block with f. Every thread must call it, and gets the
// result.
template <typename F>
__device__ double Combine(double value, F f) {
  __shared__ double values[kThreads];
  values[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      values[threadIdx.x] = f(values[threadIdx.x], values[threadIdx.x + half]);
    __syncthreads();
  }
  const double result = values[0];
  __syncthreads();
  return result;
}

// The normalizer of a row: log sum_i exp(x_i) = top + log(sum).
struct Row {
  double top, sum;
};

__device__ Row Normalizer(const float* x, int64_t classes) {
  double top = x[0];
  for (int64_t i = threadIdx.x; i < classes; i += kThreads) top = Maximum()(top, x[i]);
  top = Combine(top, Maximum());
  double sum = 0;
  for (int64_t i = threadIdx.x; i < classes; i += kThreads)
    sum += expf(x[i] - static_cast<float>(top));
  return {top, Combine(sum, Sum())};
}

__global__ void __launch_bounds__(kThreads)
    SoftmaxKernel(const float* logits, int64_t classes, float* y) {
  const int64_t first = int64_t{blockIdx.x} * classes;
  const Row row = Normalizer(logits + first, classes);
  for (int64_t i = threadIdx.x; i < classes; i += kThreads) {
    const float e = expf(logits[first + i] - static_cast<float>(row.top));
    y[first + i] = static_cast<float>(e / row.sum);
  }
}

struct CrossEntropy {
  const float* logits;
  const int32_t* labels;     // null: soft labels
  const float* soft_labels;  // null: labels
  const float* weights;
  int64_t classes;
  double smoothing, scale;
  double* row_losses;
  float* dlogits;
};

// With p = softmax(x) and targets t: loss = sum_i -t_i log p_i, d loss/dx = p - t. Rows with weight
// 0 are not read.
__global__ void __launch_bounds__(kThreads) CrossEntropyKernel(CrossEntropy a) {
  const int64_t row = blockIdx.x, first = row * a.classes;
  const float* x = a.logits + first;
  const double weight = a.scale * a.weights[row];
  if (weight == 0) {  // all threads of the block return here, so no barrier is missed
    for (int64_t i = threadIdx.x; i < a.classes; i += kThreads) a.dlogits[first + i] = 0;
    if (threadIdx.x == 0) a.row_losses[row] = 0;
    return;
  }
  const Row normalizer = Normalizer(x, a.classes);
  const double log_sum = log(normalizer.sum);
  double loss = 0;
  for (int64_t i = threadIdx.x; i < a.classes; i += kThreads) {
    const double centered = x[i] - normalizer.top;
    const double label = a.labels == nullptr ? a.soft_labels[first + i] : i == a.labels[row];
    const double target = label * (1 - a.smoothing) + a.smoothing / a.classes;
    loss += target * (log_sum - centered);
    const double p = expf(static_cast<float>(centered)) / normalizer.sum;
    a.dlogits[first + i] = static_cast<float>(weight * (p - target));
  }
  loss = Combine(loss, Sum());
  if (threadIdx.x == 0) a.row_losses[row] = weight * loss;
}

__global__ void __launch_bounds__(kThreads)
    SumKernel(const double* values, int64_t count, float* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += values[i];
  sum = Combine(sum, Sum());
  if (threadIdx.x == 0) *total = static_cast<float>(sum);
}

class Softmax : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    Launch(device_.stream, dim3(static_cast<unsigned>(in_shape(0)[0])), SoftmaxKernel, in<float>(0),
           in_shape(0)[1], out<float>(0));
  }
};

class SoftmaxCrossEntropy : public CudaKernel {
 public:
  SoftmaxCrossEntropy(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device), rows_(in_shape(0)[0]) {
    workspace_bytes_ = sizeof(double) * rows_;
  }

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<SoftmaxCrossEntropyAttributes>();
    const bool is_soft = spec_.inputs[1].dtype != DType::kI32;
    double* row_losses = reinterpret_cast<double*>(memory_.workspace);
    Launch(device_.stream, dim3(static_cast<unsigned>(rows_)), CrossEntropyKernel,
           CrossEntropy{.logits = in<float>(0),
                        .labels = is_soft ? nullptr : in<int32_t>(1),
                        .soft_labels = is_soft ? in<float>(1) : nullptr,
                        .weights = in<float>(2),
                        .classes = in_shape(0)[1],
                        .smoothing = a.smoothing,
                        .scale = a.scale,
                        .row_losses = row_losses,
                        .dlogits = out<float>(1)});
    Launch(device_.stream, dim3(1), SumKernel, row_losses, rows_, out<float>(0));
  }

 private:
  const int64_t rows_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kSoftmax, .make = Make<Softmax>},
    {.kind = op::kSoftmaxCrossEntropy, .make = Make<SoftmaxCrossEntropy>},
};

}  // namespace

KernelRows SoftmaxKernels() { return kRows; }

}  // namespace carole::cuda
