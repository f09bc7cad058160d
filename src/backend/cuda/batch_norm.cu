// Batch normalization in three passes: sums over the pixels of each channel, numbers for each
// channel, then each element. ReLU and residual are part of the passes over elements.
#include "src/backend/cuda/channel_sums.h"
#include "src/backend/cuda/cuda.h"
#include "src/tensor/buffer.h"

namespace carole::cuda {
namespace {

using Forward = BatchNormPlaces;
using Backward = BatchNormBackwardPlaces;

// The rows of the matrix (pixels, channels) that have a part in the statistics; how many images are
// valid is only known on the device.
struct CountedPixels {
  const RunNumbers* numbers;
  int64_t images, each;

  CountedPixels(const Shape& x, const RunNumbers* numbers)
      : numbers(numbers), images(x[0]), each(x.rank() == 4 ? x[2] * x[3] : 1) {}
  int64_t all() const { return images * each; }
  __device__ int64_t Count() const {
    return (numbers->valid_rows == 0 ? images : numbers->valid_rows) * each;
  }
};

// What N channels need. Forward and backward calculate alike, bit by bit, so that backward finds
// the ReLU's mask again.
template <int N>
struct Columns {
  int64_t channel;
  Floats<N> mean, scale, beta;

  __device__ float Normalize(float x, int i) const { return fmaf(x - mean[i], scale[i], beta[i]); }
};

struct Channels {
  const float *mean, *rstd, *gamma, *beta;

  template <int N>
  __device__ Columns<N> At(int64_t channel) const {
    Columns<N> columns{.channel = channel};
    for (int i = 0; i < N; ++i) {
      const int64_t c = channel + i;
      columns.mean[i] = mean[c];
      columns.scale[i] = (gamma != nullptr ? gamma[c] : 1) * rstd[c];
      columns.beta[i] = beta != nullptr ? beta[c] : 0;
    }
    return columns;
  }
};

// Sums of d and d^2, d = x - pivot, which keeps its digits when |mean| is large.
template <typename T, int N>
struct StatisticsSums {
  CountedPixels counted;
  int64_t channels;
  const T* x;

  struct Pivot {
    int64_t channel;
    Floats<N> values;
  };
  __device__ int64_t Pixels() const { return counted.Count(); }
  __device__ Pivot Column(int64_t channel) const { return {channel, Load<N>(x + channel)}; }
  __device__ void Add(const Pivot& pivot, int64_t pixel, Floats<N>* sums) const {
    const Floats<N> values = Load<N>(x + pixel * channels + pivot.channel);
    for (int i = 0; i < N; ++i) {
      const float d = values[i] - pivot.values[i];
      sums[0][i] += d;
      sums[1][i] += d * d;
    }
  }
};

template <typename T, int N>
struct ApplyForward {
  Channels parameters;
  int64_t channels;
  const T *x, *residual;
  T* y;
  bool relu;

  __device__ Columns<N> Column(int64_t channel) const { return parameters.At<N>(channel); }
  __device__ void operator()(const Columns<N>& column, int64_t pixel) const {
    const int64_t at = pixel * channels + column.channel;
    Floats<N> values = Load<N>(x + at), added{};
    if (residual != nullptr) added = Load<N>(residual + at);
    for (int i = 0; i < N; ++i) {
      const float value = column.Normalize(values[i], i) + added[i];
      values[i] = relu && value < 0 ? 0 : value;  // NaN stays NaN
    }
    Store<N>(y + at, values);
  }
};

template <typename T, int N>
class BatchNorm : public CudaKernel {
 public:
  BatchNorm(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        a_(spec.attributes_as<BatchNormAttributes>()),
        channels_(in_shape(Forward::kX)[1]),
        counted_(in_shape(Forward::kX), device.numbers),
        sums_bytes_(AlignUp(PartialSumsBytes<2, N>(counted_.all(), channels_))) {
    workspace_bytes_ = sums_bytes_ + 2 * sizeof(float) * channels_;
  }

  void Run(const RunContext&) override {
    PartialSums sums;
    if (a_.training) {
      sums = ChannelSums<2, N>(device_.stream, counted_.all(), channels_, memory_.workspace,
                               StatisticsSums<T, N>{counted_, channels_, in<T>(Forward::kX)});
    }
    Finish(sums);
    ForMatrix<N>(
        device_.stream, counted_.all(), channels_,
        ApplyForward<T, N>{{mean(), rstd(), in<float>(Forward::kGamma), in<float>(Forward::kBeta)},
                           channels_,
                           in<T>(Forward::kX),
                           in<T>(Forward::kResidual),
                           out<T>(Forward::kY),
                           a_.relu});
  }

  // Public, as nvcc wants it of a function that holds a device lambda.
  void Finish(const PartialSums& sums) const {
    const T* x = in<T>(Forward::kX);
    float *moving_mean = in<float>(Forward::kMovingMean),
          *moving_variance = in<float>(Forward::kMovingVariance);
    float *mean_out = mean(), *rstd_out = rstd();
    const BatchNormAttributes a = a_;
    const CountedPixels counted = counted_;
    ForEach(device_.stream, channels_, [=] __device__(int64_t c) {
      double mean = moving_mean[c], variance = moving_variance[c];
      if (a.training) {
        const double n = static_cast<double>(counted.Count());
        const double shift = sums.Total(0, c) / n;
        mean = static_cast<float>(x[c]) + shift;
        const double spread = sums.Total(1, c) / n - shift * shift;
        variance = spread < 0 ? 0 : spread;
        const double unbiased = n > 1 ? variance * n / (n - 1) : variance;
        moving_mean[c] = moving_mean[c] + (1 - a.decay) * (mean - moving_mean[c]);
        moving_variance[c] = moving_variance[c] + (1 - a.decay) * (unbiased - moving_variance[c]);
      }
      mean_out[c] = static_cast<float>(mean);
      rstd_out[c] = static_cast<float>(1 / sqrt(variance + a.epsilon));
    });
  }

 private:
  // Outputs, or in the workspace where nobody wants them.
  float* mean() const {
    float* wanted = out<float>(Forward::kMean);
    return wanted != nullptr ? wanted : reinterpret_cast<float*>(memory_.workspace + sums_bytes_);
  }
  float* rstd() const {
    float* wanted = out<float>(Forward::kRstd);
    return wanted != nullptr
               ? wanted
               : reinterpret_cast<float*>(memory_.workspace + sums_bytes_) + channels_;
  }

  const BatchNormAttributes a_;
  const int64_t channels_;
  const CountedPixels counted_;
  const size_t sums_bytes_;
};

// dy where the ReLU let y through, beside x.
template <typename T, int N>
struct MaskedGradient {
  Channels parameters;
  int64_t channels;
  const T *dy, *x, *y;
  bool relu;

  struct Values {
    Floats<N> g, x;
  };
  __device__ Values At(const Columns<N>& column, int64_t at) const {
    Values values{Load<N>(dy + at), Load<N>(x + at)};
    if (!relu) return values;
    Floats<N> passed;
    if (y != nullptr) {
      passed = Load<N>(y + at);
    } else {
      for (int i = 0; i < N; ++i) passed[i] = column.Normalize(values.x[i], i);
    }
    for (int i = 0; i < N; ++i) values.g[i] = passed[i] > 0 ? values.g[i] : 0;
    return values;
  }
};

// Sums of g and of g * (x - mean).
template <typename T, int N>
struct GradientSums {
  CountedPixels counted;
  MaskedGradient<T, N> g;

  __device__ int64_t Pixels() const { return counted.Count(); }
  __device__ Columns<N> Column(int64_t channel) const {
    return g.parameters.template At<N>(channel);
  }
  __device__ void Add(const Columns<N>& column, int64_t pixel, Floats<N>* sums) const {
    const auto values = g.At(column, pixel * g.channels + column.channel);
    for (int i = 0; i < N; ++i) {
      sums[0][i] += values.g[i];
      sums[1][i] += values.g[i] * (values.x[i] - column.mean[i]);
    }
  }
};

// dx = scale * (g - shift - (x - mean) * slope); rows that do not count: scale * g.
template <typename T, int N>
struct ApplyBackward {
  CountedPixels counted;
  MaskedGradient<T, N> g;
  const float *shift, *slope;
  T *dx, *dresidual;

  struct BackwardColumns {
    Columns<N> forward;
    Floats<N> shift, slope;
    int64_t counted;
  };
  __device__ BackwardColumns Column(int64_t channel) const {
    return {g.parameters.template At<N>(channel), Load<N>(shift + channel),
            Load<N>(slope + channel), counted.Count()};
  }
  __device__ void operator()(const BackwardColumns& column, int64_t pixel) const {
    const int64_t at = pixel * g.channels + column.forward.channel;
    auto values = g.At(column.forward, at);
    if (dresidual != nullptr) Store<N>(dresidual + at, values.g);
    for (int i = 0; i < N; ++i) {
      float centred = values.g[i];
      if (pixel < column.counted) {
        centred -= column.shift[i];
        centred -= (values.x[i] - column.forward.mean[i]) * column.slope[i];
      }
      values.g[i] = column.forward.scale[i] * centred;
    }
    Store<N>(dx + at, values.g);
  }
};

template <typename T, int N>
class BatchNormBackward : public CudaKernel {
 public:
  BatchNormBackward(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        relu_(spec.attributes_as<BatchNormAttributes>().relu),
        channels_(in_shape(Backward::kX)[1]),
        counted_(in_shape(Backward::kX), device.numbers),
        sums_bytes_(AlignUp(PartialSumsBytes<2, N>(counted_.all(), channels_))) {
    workspace_bytes_ = sums_bytes_ + 2 * sizeof(float) * channels_;
  }

  void Run(const RunContext&) override {
    const MaskedGradient<T, N> g{{in<float>(Backward::kMean), in<float>(Backward::kRstd),
                                  in<float>(Backward::kGamma), in<float>(Backward::kBeta)},
                                 channels_,
                                 in<T>(Backward::kDy),
                                 in<T>(Backward::kX),
                                 in<T>(Backward::kY),
                                 relu_};
    Finish(ChannelSums<2, N>(device_.stream, counted_.all(), channels_, memory_.workspace,
                             GradientSums<T, N>{counted_, g}));
    ForMatrix<N>(device_.stream, counted_.all(), channels_,
                 ApplyBackward<T, N>{counted_, g, shift(), slope(), out<T>(Backward::kDx),
                                     out<T>(Backward::kDresidual)});
  }

  void Finish(const PartialSums& sums) const {
    const float* rstd = in<float>(Backward::kRstd);
    float *dgamma = out<float>(Backward::kDgamma), *dbeta = out<float>(Backward::kDbeta);
    float *shift_out = shift(), *slope_out = slope();
    const CountedPixels counted = counted_;
    ForEach(device_.stream, channels_, [=] __device__(int64_t c) {
      const double n = static_cast<double>(counted.Count());
      const double beta_sum = sums.Total(0, c), gamma_sum = sums.Total(1, c) * rstd[c];
      if (dbeta != nullptr) dbeta[c] = static_cast<float>(beta_sum);
      if (dgamma != nullptr) dgamma[c] = static_cast<float>(gamma_sum);
      shift_out[c] = static_cast<float>(beta_sum / n);
      slope_out[c] = static_cast<float>(rstd[c] * gamma_sum / n);
    });
  }

 private:
  float* shift() const { return reinterpret_cast<float*>(memory_.workspace + sums_bytes_); }
  float* slope() const { return shift() + channels_; }

  const bool relu_;
  const int64_t channels_;
  const CountedPixels counted_;
  const size_t sums_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakeBatchNorm(const OpSpec& spec, const Device& device) {
  return MakePacked<BatchNorm>(spec, device, spec.inputs[Forward::kX].shape[1]);
}
std::unique_ptr<Kernel> MakeBatchNormBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<BatchNormBackward>(spec, device, spec.inputs[Backward::kX].shape[1]);
}

}  // namespace carole::cuda
