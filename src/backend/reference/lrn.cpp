// Local response normalization across channels; x is a matrix (pixels, C) in memory. With
// s_c = bias + alpha * sum_{|j-c| <= radius} x_j^2:
//   y_c  = x_c s_c^-beta
//   dx_c = dy_c s_c^-beta - 2 alpha beta x_c sum_{|j-c| <= radius} dy_j x_j s_j^(-beta-1)
#include "src/backend/ops/lrn.h"

#include <algorithm>
#include <cmath>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

// The sum of f(j) over the neighbors j of channel c.
template <typename F>
double NeighborSum(int64_t c, int64_t channels, int64_t radius, const F& f) {
  double sum = 0;
  for (int64_t j = std::max<int64_t>(c - radius, 0); j <= std::min(c + radius, channels - 1); ++j) {
    sum += f(j);
  }
  return sum;
}

template <typename T>
double Denominator(const LrnAttributes& a, const T* x, int64_t c, int64_t channels) {
  const auto square = [&](int64_t j) { return double{x[j]} * x[j]; };
  return a.bias + a.alpha * NeighborSum(c, channels, a.radius, square);
}

template <typename T>
class Lrn : public ReferenceKernel {
 public:
  using ReferenceKernel::ReferenceKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<LrnAttributes>();
    const int64_t channels = in_shape(0)[1];
    ForIndices(threads_, in_shape(0).size() / channels, [&](int64_t pixel) {
      const T* x = in<T>(0) + pixel * channels;
      T* y = out<T>(0) + pixel * channels;
      for (int64_t c = 0; c < channels; ++c) {
        y[c] = static_cast<T>(x[c] * std::pow(Denominator(a, x, c, channels), -a.beta));
      }
    });
  }
};

template <typename T>
class LrnBackward : public ReferenceKernel {
 public:
  LrnBackward(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads), channels_(in_shape(0)[1]) {
    workspace_bytes_ = sizeof(double) * 2 * in_shape(0).size();
  }

  void Run(const RunContext&) override {
    ForIndices(threads_, in_shape(0).size() / channels_, [&](int64_t pixel) {
      const int64_t at = pixel * channels_;
      RunPixel(in<T>(0) + at, in<T>(1) + at, out<T>(0) + at,
               reinterpret_cast<double*>(memory_.workspace) + 2 * at);
    });
  }

 private:
  void RunPixel(const T* dy, const T* x, T* dx, double* scratch) const {
    const auto& a = spec_.attributes.as<LrnAttributes>();
    double* factor = scratch;               // s_c^-beta
    double* product = scratch + channels_;  // dy_c x_c s_c^(-beta-1)
    for (int64_t c = 0; c < channels_; ++c) {
      const double s = Denominator(a, x, c, channels_);
      factor[c] = std::pow(s, -a.beta);
      product[c] = double{dy[c]} * x[c] * factor[c] / s;
    }
    for (int64_t c = 0; c < channels_; ++c) {
      const double sum = NeighborSum(c, channels_, a.radius, [&](int64_t j) { return product[j]; });
      dx[c] = static_cast<T>(dy[c] * factor[c] - 2 * a.alpha * a.beta * x[c] * sum);
    }
  }

  const int64_t channels_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kLrn, .make = MakeTyped<Lrn>},
    {.kind = op::kLrnBackward, .make = MakeTyped<LrnBackward>},
};

}  // namespace

KernelRows LrnKernels() { return kRows; }

}  // namespace carole::reference
