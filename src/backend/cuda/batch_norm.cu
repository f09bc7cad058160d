#include "src/backend/cuda/batch_norm.h"

namespace carole::cuda {
namespace {

using Forward = BatchNormPlaces;

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

// Mean and biased variance of a channel's pixels.
struct Moments {
  double mean, variance, count;
};

// Of this rank's pixels, from the sums of d and d^2.
template <typename T>
struct OwnMoments {
  PartialSums sums;
  CountedPixels counted;
  const T* x;

  __device__ double Pivot(int64_t c) const { return static_cast<float>(x[c]); }
  __device__ Moments At(int64_t c) const {
    const double n = static_cast<double>(counted.Count());
    const double shift = sums.Total(0, c) / n;
    const double spread = sums.Total(1, c) / n - shift * shift;
    return {Pivot(c) + shift, spread < 0 ? 0 : spread, n};
  }
};

// The sums of x and x^2, which have the same pivot on all ranks: 0. Doubles lose nothing by it that
// fp32 has.
template <typename T>
struct PlainSums {
  OwnMoments<T> own;

  __device__ TwoSums At(int64_t c) const {
    const double n = static_cast<double>(own.counted.Count());
    const double pivot = own.Pivot(c), d = own.sums.Total(0, c), d2 = own.sums.Total(1, c);
    return {d + n * pivot, d2 + pivot * (2 * d + n * pivot), n};
  }
};

// Of all ranks' pixels.
struct RanksMoments {
  RankMessage message;

  __device__ Moments At(int64_t c) const {
    const TwoSums sums = message.At(c);
    const double mean = sums.first / sums.count;
    const double spread = sums.second / sums.count - mean * mean;
    return {mean, spread < 0 ? 0 : spread, sums.count};
  }
};

// The moving ones, in inference.
struct MovingMoments {
  const float *mean, *variance;

  __device__ Moments At(int64_t c) const { return {mean[c], variance[c], 0}; }
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
        sums_bytes_(AlignUp(PartialSumsBytes<2, N>(counted_.all(), channels_))),
        message_bytes_(AlignUp(RankMessage::Bytes(channels_))) {
    workspace_bytes_ = sums_bytes_ + message_bytes_ + 2 * sizeof(float) * channels_;
  }

  void Run(const RunContext& context) override {
    if (!a_.training) {
      Finish(MovingMoments{in<float>(Forward::kMovingMean), in<float>(Forward::kMovingVariance)});
    } else {
      const T* x = in<T>(Forward::kX);
      const OwnMoments<T> own{
          ChannelSums<2, N>(device_.stream, counted_.all(), channels_, memory_.workspace,
                            StatisticsSums<T, N>{counted_, channels_, x}),
          counted_, x};
      if (context.sum_over_ranks) {
        message().SumOverRanks(context, device_.stream, PlainSums<T>{own});
        Finish(RanksMoments{message()});
      } else {
        Finish(own);
      }
    }
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
  template <typename Source>
  void Finish(Source source) const {
    float *moving_mean = in<float>(Forward::kMovingMean),
          *moving_variance = in<float>(Forward::kMovingVariance);
    float *mean_out = mean(), *rstd_out = rstd();
    const BatchNormAttributes a = a_;
    ForEach(device_.stream, channels_, [=] __device__(int64_t c) {
      const Moments m = source.At(c);
      if (a.training) {
        const double n = m.count, unbiased = n > 1 ? m.variance * n / (n - 1) : m.variance;
        moving_mean[c] = moving_mean[c] + (1 - a.decay) * (m.mean - moving_mean[c]);
        moving_variance[c] = moving_variance[c] + (1 - a.decay) * (unbiased - moving_variance[c]);
      }
      mean_out[c] = static_cast<float>(m.mean);
      rstd_out[c] = static_cast<float>(1 / sqrt(m.variance + a.epsilon));
    });
  }

 private:
  RankMessage message() const {
    return {reinterpret_cast<double*>(memory_.workspace + sums_bytes_), channels_};
  }
  // Outputs, or in the workspace where nobody wants them.
  float* mean() const {
    float* wanted = out<float>(Forward::kMean);
    return wanted != nullptr ? wanted : own_numbers();
  }
  float* rstd() const {
    float* wanted = out<float>(Forward::kRstd);
    return wanted != nullptr ? wanted : own_numbers() + channels_;
  }
  float* own_numbers() const {
    return reinterpret_cast<float*>(memory_.workspace + sums_bytes_ + message_bytes_);
  }

  const BatchNormAttributes a_;
  const int64_t channels_;
  const CountedPixels counted_;
  const size_t sums_bytes_, message_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakeBatchNorm(const OpSpec& spec, const Device& device) {
  return MakePacked<BatchNorm>(spec, device, spec.inputs[Forward::kX].shape[1]);
}

}  // namespace carole::cuda
