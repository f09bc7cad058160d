// Local response normalization across channels, one thread for each element. With
// s_c = bias + alpha * sum_{|j-c| <= radius} x_j^2:
//   y_c  = x_c s_c^-beta
//   dx_c = dy_c s_c^-beta - 2 alpha beta x_c sum_{|j-c| <= radius} dy_j x_j s_j^(-beta-1)
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/ops/lrn.h"

namespace carole::cuda {
namespace {

// LrnAttributes in fp32, and the neighborhoods of channels.
struct Neighborhood {
  int64_t channels, radius;
  float bias, alpha, beta;

  Neighborhood(const LrnAttributes& a, int64_t channels)
      : channels(channels),
        radius(a.radius),
        bias(static_cast<float>(a.bias)),
        alpha(static_cast<float>(a.alpha)),
        beta(static_cast<float>(a.beta)) {}

  __device__ int64_t First(int64_t c) const { return c > radius ? c - radius : 0; }
  __device__ int64_t End(int64_t c) const {
    return c + radius + 1 < channels ? c + radius + 1 : channels;
  }
  template <typename T>
  __device__ float Denominator(const T* pixel, int64_t c) const {
    float sum = 0;
    for (int64_t j = First(c); j < End(c); ++j) {
      const float x = static_cast<float>(pixel[j]);
      sum += x * x;
    }
    return bias + alpha * sum;
  }
};

template <typename T>
struct LrnForward {
  Neighborhood n;
  const T* x;
  T* y;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t c, int64_t pixel) const {
    const T* row = x + pixel * n.channels;
    const float value = static_cast<float>(row[c]) * powf(n.Denominator(row, c), -n.beta);
    y[pixel * n.channels + c] = static_cast<T>(value);
  }
};

// The first pass of the gradient: for each element, s_c^-beta and dy_c x_c s_c^(-beta-1).
template <typename T>
struct LrnFactors {
  Neighborhood n;
  const T *dy, *x;
  float *factors, *products;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t c, int64_t pixel) const {
    const int64_t at = pixel * n.channels + c;
    const float s = n.Denominator(x + pixel * n.channels, c);
    const float factor = powf(s, -n.beta);
    factors[at] = factor;
    products[at] = static_cast<float>(dy[at]) * static_cast<float>(x[at]) * factor / s;
  }
};

template <typename T>
struct LrnBackward {
  Neighborhood n;
  const T *dy, *x;
  const float *factors, *products;
  T* dx;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t c, int64_t pixel) const {
    const int64_t row = pixel * n.channels;
    float sum = 0;
    for (int64_t j = n.First(c); j < n.End(c); ++j) sum += products[row + j];
    const float first = static_cast<float>(dy[row + c]) * factors[row + c];
    const float second = 2 * n.alpha * n.beta * static_cast<float>(x[row + c]) * sum;
    dx[row + c] = static_cast<T>(first - second);
  }
};

class LrnKernel : public CudaKernel {
 public:
  LrnKernel(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device), n_(spec.attributes.as<LrnAttributes>(), in_shape(0)[1]) {}

 protected:
  int64_t pixels() const { return in_shape(0).size() / n_.channels; }

  const Neighborhood n_;
};

template <typename T>
class Lrn : public LrnKernel {
 public:
  using LrnKernel::LrnKernel;

  void Run(const RunContext&) override {
    ForMatrix<1>(device_.stream, pixels(), n_.channels, LrnForward<T>{n_, in<T>(0), out<T>(0)});
  }
};

template <typename T>
class LrnGradient : public LrnKernel {
 public:
  LrnGradient(const OpSpec& spec, const Device& device) : LrnKernel(spec, device) {
    workspace_bytes_ = 2 * sizeof(float) * in_shape(0).size();
  }

  void Run(const RunContext&) override {
    float* factors = reinterpret_cast<float*>(memory_.workspace);
    float* products = factors + in_shape(0).size();
    ForMatrix<1>(device_.stream, pixels(), n_.channels,
                 LrnFactors<T>{n_, in<T>(0), in<T>(1), factors, products});
    ForMatrix<1>(device_.stream, pixels(), n_.channels,
                 LrnBackward<T>{n_, in<T>(0), in<T>(1), factors, products, out<T>(0)});
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kLrn, .make = MakeTyped<Lrn>},
    {.kind = op::kLrnBackward, .make = MakeTyped<LrnGradient>},
};

}  // namespace

KernelRows LrnKernels() { return kRows; }

}  // namespace carole::cuda
