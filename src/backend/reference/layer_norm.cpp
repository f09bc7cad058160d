// Layer normalization over the channels of each pixel. x is a matrix (pixels, C) in memory. All
// sums are accumulated in double.
#include "src/backend/ops/layer_norm.h"

#include <cmath>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

constexpr auto kIn = kPosition<LayerNormInputs>;
constexpr auto kBackIn = kPosition<LayerNormBackwardInputs>;
constexpr auto kBackOut = kPosition<LayerNormBackwardOutputs>;

struct Moments {
  double mean, rstd;
};

template <typename T>
Moments MomentsOf(const T* x, int64_t channels, double epsilon) {
  double mean = 0, variance = 0;
  for (int64_t c = 0; c < channels; ++c) mean += x[c];
  mean /= static_cast<double>(channels);
  for (int64_t c = 0; c < channels; ++c) variance += (x[c] - mean) * (x[c] - mean);
  variance /= static_cast<double>(channels);
  return {.mean = mean, .rstd = 1 / std::sqrt(variance + epsilon)};
}

template <typename T>
class LayerNorm : public ReferenceKernel {
 public:
  using ReferenceKernel::ReferenceKernel;

  void Run(const RunContext&) override {
    const double epsilon = spec_.attributes.as<LayerNormAttributes>().epsilon;
    const int64_t channels = in_shape(kIn.x)[1];
    const T *gamma = in<T>(kIn.gamma), *beta = in<T>(kIn.beta);
    ForIndices(threads_, in_shape(kIn.x).size() / channels, [&](int64_t pixel) {
      const T* x = in<T>(kIn.x) + pixel * channels;
      T* y = out<T>(0) + pixel * channels;
      const Moments m = MomentsOf(x, channels, epsilon);
      for (int64_t c = 0; c < channels; ++c) {
        const double xhat = (x[c] - m.mean) * m.rstd;
        const double scaled = gamma != nullptr ? gamma[c] * xhat : xhat;
        y[c] = static_cast<T>(beta != nullptr ? scaled + beta[c] : scaled);
      }
    });
  }
};

template <typename T>
class LayerNormBackward : public ReferenceKernel {
 public:
  LayerNormBackward(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        channels_(in_shape(kBackIn.x)[1]),
        pixels_(in_shape(kBackIn.x).size() / channels_) {
    workspace_bytes_ = sizeof(Moments) * static_cast<size_t>(pixels_);
  }

  void Run(const RunContext&) override {
    const double epsilon = spec_.attributes.as<LayerNormAttributes>().epsilon;
    ForIndices(threads_, pixels_, [&](int64_t pixel) {
      moments()[pixel] = MomentsOf(in<T>(kBackIn.x) + pixel * channels_, channels_, epsilon);
      if (out<T>(kBackOut.dx) != nullptr) Dx(pixel);
    });
    ForRanges(threads_, channels_, kChannelGrain,
              [&](int64_t begin, int64_t end) { SumChannels(begin, end); });
  }

 private:
  Moments* moments() const { return reinterpret_cast<Moments*>(memory_.workspace); }

  void Dx(int64_t pixel) const {
    const int64_t at = pixel * channels_;
    const T *dy = in<T>(kBackIn.dy) + at, *x = in<T>(kBackIn.x) + at;
    const T* gamma = in<T>(kBackIn.gamma);
    T* dx = out<T>(kBackOut.dx) + at;
    const Moments m = moments()[pixel];
    const auto g = [&](int64_t c) { return gamma != nullptr ? double{gamma[c]} * dy[c] : dy[c]; };
    double sum_g = 0, sum_gx = 0;
    for (int64_t c = 0; c < channels_; ++c) {
      sum_g += g(c);
      sum_gx += g(c) * (x[c] - m.mean) * m.rstd;
    }
    const auto n = static_cast<double>(channels_);
    for (int64_t c = 0; c < channels_; ++c) {
      const double xhat = (x[c] - m.mean) * m.rstd;
      dx[c] = static_cast<T>(m.rstd * (g(c) - sum_g / n - xhat * sum_gx / n));
    }
  }

  void SumChannels(int64_t begin, int64_t end) const {
    T *dgamma = out<T>(kBackOut.dgamma), *dbeta = out<T>(kBackOut.dbeta);
    double gamma_sums[kChannelGrain] = {}, beta_sums[kChannelGrain] = {};
    for (int64_t pixel = 0; pixel < pixels_; ++pixel) {
      const T *dy = in<T>(kBackIn.dy) + pixel * channels_,
              *x = in<T>(kBackIn.x) + pixel * channels_;
      const Moments m = moments()[pixel];
      for (int64_t c = begin; c < end; ++c) {
        gamma_sums[c - begin] += dy[c] * (x[c] - m.mean) * m.rstd;
        beta_sums[c - begin] += dy[c];
      }
    }
    for (int64_t c = begin; c < end; ++c) {
      if (dgamma != nullptr) dgamma[c] = static_cast<T>(gamma_sums[c - begin]);
      if (dbeta != nullptr) dbeta[c] = static_cast<T>(beta_sums[c - begin]);
    }
  }

  const int64_t channels_, pixels_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kLayerNorm, .make = MakeTyped<LayerNorm>},
    {.kind = op::kLayerNormBackward, .make = MakeTyped<LayerNormBackward>},
};

}  // namespace

KernelRows LayerNormKernels() { return kRows; }

}  // namespace carole::reference
