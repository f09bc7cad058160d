// Local response normalization across channels, one thread for each element. With
// s_c = bias + alpha * sum_{|j-c| <= radius} x_j^2:
//   y_c  = x_c s_c^-beta
//   dx_c = dy_c s_c^-beta - 2 alpha beta x_c sum_{|j-c| <= radius} dy_j x_j s_j^(-beta-1)
#include "src/backend/cuda/cuda.h"
#include "src/backend/cuda/launch.h"

namespace carole::cuda {
namespace {

// The numbers of LrnAttributes in the kernels' precision, and where a pixel's channels end.
struct Neighbourhood {
  int64_t channels, radius;
  float bias, alpha, beta;

  Neighbourhood(const LrnAttributes& a, int64_t channels)
      : channels(channels),
        radius(a.radius),
        bias(static_cast<float>(a.bias)),
        alpha(static_cast<float>(a.alpha)),
        beta(static_cast<float>(a.beta)) {}

  __device__ int64_t First(int64_t c) const { return c > radius ? c - radius : 0; }
  __device__ int64_t End(int64_t c) const {
    return c + radius + 1 < channels ? c + radius + 1 : channels;
  }
  __device__ float Denominator(const float* pixel, int64_t c) const {
    float sum = 0;
    for (int64_t j = First(c); j < End(c); ++j) sum += pixel[j] * pixel[j];
    return bias + alpha * sum;
  }
};

struct LrnForward {
  Neighbourhood n;
  const float* x;
  float* y;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t c, int64_t pixel) const {
    const float* row = x + pixel * n.channels;
    y[pixel * n.channels + c] = row[c] * powf(n.Denominator(row, c), -n.beta);
  }
};

// First s_c^-beta of every element, and dy_c x_c s_c^(-beta-1).
struct LrnFactors {
  Neighbourhood n;
  const float *dy, *x;
  float *factors, *products;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t c, int64_t pixel) const {
    const int64_t at = pixel * n.channels + c;
    const float s = n.Denominator(x + pixel * n.channels, c);
    const float factor = powf(s, -n.beta);
    factors[at] = factor;
    products[at] = dy[at] * x[at] * factor / s;
  }
};

struct LrnBackward {
  Neighbourhood n;
  const float *dy, *x, *factors, *products;
  float* dx;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t c, int64_t pixel) const {
    const int64_t row = pixel * n.channels;
    float sum = 0;
    for (int64_t j = n.First(c); j < n.End(c); ++j) sum += products[row + j];
    dx[row + c] = dy[row + c] * factors[row + c] - 2 * n.alpha * n.beta * x[row + c] * sum;
  }
};

class LrnKernel : public CudaKernel {
 public:
  LrnKernel(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device), n_(spec.attributes_as<LrnAttributes>(), in_shape(0)[1]) {}

 protected:
  int64_t pixels() const { return in_shape(0).size() / n_.channels; }

  const Neighbourhood n_;
};

class Lrn : public LrnKernel {
 public:
  using LrnKernel::LrnKernel;

  void Run(const RunContext&) override {
    ForMatrix(device_.stream, pixels(), n_.channels, LrnForward{n_, in<float>(0), out<float>(0)});
  }
};

class LrnGradient : public LrnKernel {
 public:
  LrnGradient(const OpSpec& spec, const Device& device) : LrnKernel(spec, device) {
    workspace_bytes_ = 2 * sizeof(float) * in_shape(0).size();
  }

  void Run(const RunContext&) override {
    float* factors = reinterpret_cast<float*>(memory_.workspace);
    float* products = factors + in_shape(0).size();
    ForMatrix(device_.stream, pixels(), n_.channels,
              LrnFactors{n_, in<float>(0), in<float>(1), factors, products});
    ForMatrix(device_.stream, pixels(), n_.channels,
              LrnBackward{n_, in<float>(0), in<float>(1), factors, products, out<float>(0)});
  }
};

}  // namespace

std::unique_ptr<Kernel> MakeLrn(const OpSpec& spec, const Device& device) {
  return std::make_unique<Lrn>(spec, device);
}
std::unique_ptr<Kernel> MakeLrnBackward(const OpSpec& spec, const Device& device) {
  return std::make_unique<LrnGradient>(spec, device);
}

}  // namespace carole::cuda
