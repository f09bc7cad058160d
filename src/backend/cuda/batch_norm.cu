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

__device__ float ValueOr(const float* values, int64_t i, float otherwise) {
  return values != nullptr ? values[i] : otherwise;
}

// What an element of a channel needs. Forward and backward calculate alike, bit by bit, so that
// backward finds the ReLU's mask again.
struct Column {
  int64_t channel;
  float mean, scale, beta;

  __device__ float Normalize(float x) const { return fmaf(x - mean, scale, beta); }
};

struct Channels {
  const float *mean, *rstd, *gamma, *beta;

  __device__ Column At(int64_t c) const {
    return {c, mean[c], ValueOr(gamma, c, 1) * rstd[c], ValueOr(beta, c, 0)};
  }
};

// Sums of d and d^2, d = x - pivot, which keeps its digits when |mean| is large.
struct StatisticsSums {
  CountedPixels counted;
  int64_t channels;
  const float* x;

  struct Pivot {
    int64_t channel;
    float value;
  };
  __device__ int64_t Pixels() const { return counted.Count(); }
  __device__ Pivot Column(int64_t channel) const { return {channel, x[channel]}; }
  __device__ void Add(const Pivot& pivot, int64_t pixel, float* sums) const {
    const float d = x[pixel * channels + pivot.channel] - pivot.value;
    sums[0] += d;
    sums[1] += d * d;
  }
};

struct ApplyForward {
  Channels parameters;
  int64_t channels;
  const float *x, *residual;
  float* y;
  bool relu;

  __device__ cuda::Column Column(int64_t channel) const { return parameters.At(channel); }
  __device__ void operator()(const cuda::Column& column, int64_t pixel) const {
    const int64_t at = pixel * channels + column.channel;
    float value = column.Normalize(x[at]);
    if (residual != nullptr) value += residual[at];
    y[at] = relu && value < 0 ? 0 : value;  // NaN stays NaN
  }
};

class BatchNorm : public CudaKernel {
 public:
  BatchNorm(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        a_(spec.attributes_as<BatchNormAttributes>()),
        channels_(in_shape(Forward::kX)[1]),
        counted_(in_shape(Forward::kX), device.numbers),
        sums_bytes_(AlignUp(PartialSumsBytes<2>(counted_.all(), channels_))) {
    workspace_bytes_ = sums_bytes_ + 2 * sizeof(float) * channels_;
  }

  void Run(const RunContext&) override {
    PartialSums sums;
    if (a_.training) {
      sums = ChannelSums<2>(device_.stream, counted_.all(), channels_, memory_.workspace,
                            StatisticsSums{counted_, channels_, in<float>(Forward::kX)});
    }
    Finish(sums);
    ForMatrix(device_.stream, counted_.all(), channels_,
              ApplyForward{{mean(), rstd(), in<float>(Forward::kGamma), in<float>(Forward::kBeta)},
                           channels_,
                           in<float>(Forward::kX),
                           in<float>(Forward::kResidual),
                           out<float>(Forward::kY),
                           a_.relu});
  }

  // Public, as nvcc wants it of a function that holds a device lambda.
  void Finish(const PartialSums& sums) const {
    const float* x = in<float>(Forward::kX);
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
        mean = x[c] + shift;
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

// dy where the ReLU let y through.
struct MaskedGradient {
  Channels parameters;
  int64_t channels;
  const float *dy, *x, *y;
  bool relu;

  __device__ float At(const Column& column, int64_t at) const {
    if (!relu) return dy[at];
    const float value = y != nullptr ? y[at] : column.Normalize(x[at]);
    return value > 0 ? dy[at] : 0;
  }
};

// Sums of g and of g * (x - mean).
struct GradientSums {
  CountedPixels counted;
  MaskedGradient g;

  __device__ int64_t Pixels() const { return counted.Count(); }
  __device__ cuda::Column Column(int64_t channel) const { return g.parameters.At(channel); }
  __device__ void Add(const cuda::Column& column, int64_t pixel, float* sums) const {
    const int64_t at = pixel * g.channels + column.channel;
    const float gradient = g.At(column, at);
    sums[0] += gradient;
    sums[1] += gradient * (g.x[at] - column.mean);
  }
};

// dx = scale * (g - shift - (x - mean) * slope); rows that do not count: scale * g.
struct ApplyBackward {
  CountedPixels counted;
  MaskedGradient g;
  const float *shift, *slope;
  float *dx, *dresidual;

  struct BackwardColumn {
    cuda::Column forward;
    float shift, slope;
    int64_t counted;
  };
  __device__ BackwardColumn Column(int64_t c) const {
    return {g.parameters.At(c), shift[c], slope[c], counted.Count()};
  }
  __device__ void operator()(const BackwardColumn& column, int64_t pixel) const {
    const int64_t at = pixel * g.channels + column.forward.channel;
    const float gradient = g.At(column.forward, at);
    if (dresidual != nullptr) dresidual[at] = gradient;
    const float centred = gradient - column.shift - (g.x[at] - column.forward.mean) * column.slope;
    dx[at] = column.forward.scale * (pixel < column.counted ? centred : gradient);
  }
};

class BatchNormBackward : public CudaKernel {
 public:
  BatchNormBackward(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        relu_(spec.attributes_as<BatchNormAttributes>().relu),
        channels_(in_shape(Backward::kX)[1]),
        counted_(in_shape(Backward::kX), device.numbers),
        sums_bytes_(AlignUp(PartialSumsBytes<2>(counted_.all(), channels_))) {
    workspace_bytes_ = sums_bytes_ + 2 * sizeof(float) * channels_;
  }

  void Run(const RunContext&) override {
    const MaskedGradient g{{in<float>(Backward::kMean), in<float>(Backward::kRstd),
                            in<float>(Backward::kGamma), in<float>(Backward::kBeta)},
                           channels_,
                           in<float>(Backward::kDy),
                           in<float>(Backward::kX),
                           in<float>(Backward::kY),
                           relu_};
    Finish(ChannelSums<2>(device_.stream, counted_.all(), channels_, memory_.workspace,
                          GradientSums{counted_, g}));
    ForMatrix(device_.stream, counted_.all(), channels_,
              ApplyBackward{counted_, g, shift(), slope(), out<float>(Backward::kDx),
                            out<float>(Backward::kDresidual)});
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
  return std::make_unique<BatchNorm>(spec, device);
}
std::unique_ptr<Kernel> MakeBatchNormBackward(const OpSpec& spec, const Device& device) {
  return std::make_unique<BatchNormBackward>(spec, device);
}

}  // namespace carole::cuda
