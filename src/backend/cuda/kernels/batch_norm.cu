#include <type_traits>

#include "src/backend/cuda/kernels/batch_norm.h"

namespace carole::cuda {
namespace {

using Forward = BatchNormPlaces;

// Sums of d and d^2, d = x - pivot, which keeps its digits when |mean| is large.
template <typename T, int N>
struct StatisticsSums {
  static constexpr int kAhead = 4;
  CountedPixels counted;
  int64_t channels;
  const T* x;

  struct Pivot {
    int64_t channel;
    Floats<N> values;
  };
  __device__ int64_t Pixels() const { return counted.Count(); }
  __device__ Pivot Column(int64_t channel) const { return {channel, Load<N>(x + channel)}; }
  __device__ Pack<T, N> Read(const Pivot& pivot, int64_t pixel) const {
    return ReadPack<N>(x + pixel * channels + pivot.channel);
  }
  __device__ void Add(const Pivot& pivot, int64_t, const Pack<T, N>& read, Floats<N>* sums) const {
    const Floats<N> values = ToFloats(read);
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

  __device__ static Moments Of(const TwoSums& sums) {
    const double mean = sums.first / sums.count, spread = sums.second / sums.count - mean * mean;
    return {mean, spread < 0 ? 0 : spread, sums.count};
  }
};

// The second pass: what the third one needs of a channel, and the moving numbers.
struct WriteMoments {
  double epsilon, rate;  // rate: of the moving numbers; 0 in inference
  float *moving_mean, *moving_variance, *mean, *rstd;

  __device__ void operator()(int64_t c, const Moments& m) const {
    if (rate != 0) {
      const double n = m.count, unbiased = n > 1 ? m.variance * n / (n - 1) : m.variance;
      moving_mean[c] = moving_mean[c] + rate * (m.mean - moving_mean[c]);
      moving_variance[c] = moving_variance[c] + rate * (unbiased - moving_variance[c]);
    }
    mean[c] = static_cast<float>(m.mean);
    rstd[c] = static_cast<float>(1 / sqrt(m.variance + epsilon));
  }
};

// With the moments of this rank's pixels.
template <typename T>
struct FinishOwn {
  CountedPixels counted;
  const T* x;
  WriteMoments write;

  __device__ void operator()(int64_t c, const double* sums) const {
    Moments m = Moments::Of({sums[0], sums[1], static_cast<double>(counted.Count())});
    m.mean += static_cast<float>(x[c]);
    write(c, m);
  }
};

// The sums of x and x^2, which have the same pivot on all ranks: 0. Doubles lose nothing by it that
// fp32 has.
template <typename T>
struct TellRanks {
  CountedPixels counted;
  const T* x;
  RankMessage message;

  __device__ void operator()(int64_t c, const double* sums) const {
    const double n = static_cast<double>(counted.Count());
    // What no row wrote may be infinite.
    const double pivot = n > 0 ? static_cast<float>(x[c]) : 0;
    message.Put(c, {sums[0] + n * pivot, sums[1] + pivot * (2 * sums[0] + n * pivot), n});
  }
};

// kResidual: what is not there takes no registers.
template <typename T, int N, bool kResidual>
struct ApplyForward {
  static constexpr int kAhead = 4;
  Channels parameters;
  CountedPixels pixels;
  int64_t channels;
  const T *x, *residual;
  T* y;
  Passed<N> passed;
  Relu relu;

  struct Nothing {};
  struct Packs {
    Pack<T, N> x;
    std::conditional_t<kResidual, Pack<T, N>, Nothing> residual;
  };
  __device__ Columns<N> Column(int64_t channel) const { return parameters.At<N>(channel); }
  __device__ int64_t Place(const Columns<N>& column, int64_t i) const {
    return pixels.FromTheEnd(i) * channels + column.channel;
  }
  __device__ Packs Read(const Columns<N>& column, int64_t i) const {
    const int64_t at = Place(column, i);
    Packs packs{ReadPack<N>(x + at), {}};
    if constexpr (kResidual) packs.residual = ReadPack<N>(residual + at);
    return packs;
  }
  __device__ void Write(const Columns<N>& column, int64_t i, const Packs& packs) const {
    Floats<N> values = ToFloats(packs.x), added{};
    if constexpr (kResidual) added = ToFloats(packs.residual);
    for (int n = 0; n < N; ++n) {
      values[n] = relu(column.Normalize(values[n], n) + added[n]);
    }
    Store<N>(y + Place(column, i), values);
    if constexpr (kResidual) {
      if (passed.bytes != nullptr) passed.Put(Place(column, i), values);
    }
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
    const WriteMoments write{a_.epsilon,
                             a_.training ? 1 - a_.decay : 0,
                             in<float>(Forward::kMovingMean),
                             in<float>(Forward::kMovingVariance),
                             mean(),
                             rstd()};
    if (!a_.training) {
      TakeMovingMoments(write);
    } else if (context.sum_over_ranks) {
      Sum(TellRanks<T>{counted_, in<T>(Forward::kX), message()});
      message().SumOverRanks(context);
      TakeRanksMoments(write);
    } else {
      Sum(FinishOwn<T>{counted_, in<T>(Forward::kX), write});
    }
    in<T>(Forward::kResidual) != nullptr ? Apply<true>() : Apply<false>();
  }

  // Public, as nvcc wants it of functions that hold a device lambda.
  void TakeMovingMoments(const WriteMoments& write) const {
    ForEach(device_.stream, channels_, [=] __device__(int64_t c) {
      write(c, {write.moving_mean[c], write.moving_variance[c], 0});
    });
  }
  void TakeRanksMoments(const WriteMoments& write) const {
    const RankMessage message = this->message();
    ForEach(device_.stream, channels_,
            [=] __device__(int64_t c) { write(c, Moments::Of(message.At(c))); });
  }

 private:
  template <typename Finish>
  void Sum(Finish finish) const {
    ChannelSums<2, N>(device_.stream, counted_.all(), channels_, memory_.workspace,
                      StatisticsSums<T, N>{counted_, channels_, in<T>(Forward::kX)}, finish);
  }
  template <bool kResidual>
  void Apply() const {
    ForMatrix<N>(device_.stream, counted_.all(), channels_,
                 ApplyForward<T, N, kResidual>{
                     {mean(), rstd(), in<float>(Forward::kGamma), in<float>(Forward::kBeta)},
                     counted_,
                     channels_,
                     in<T>(Forward::kX),
                     in<T>(Forward::kResidual),
                     out<T>(Forward::kY),
                     {out<uint8_t>(Forward::kReluBitmask)},
                     Relu(a_)});
  }
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
