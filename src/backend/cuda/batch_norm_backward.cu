#include "src/backend/cuda/batch_norm.h"

namespace carole::cuda {
namespace {

using Backward = BatchNormBackwardPlaces;

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

// This rank's parts of dbeta and dgamma.
struct OwnGradients {
  PartialSums sums;
  CountedPixels counted;
  const float* rstd;

  __device__ TwoSums At(int64_t c) const {
    return {sums.Total(0, c), sums.Total(1, c) * rstd[c], static_cast<double>(counted.Count())};
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
        sums_bytes_(AlignUp(PartialSumsBytes<2, N>(counted_.all(), channels_))),
        message_bytes_(AlignUp(RankMessage::Bytes(channels_))) {
    workspace_bytes_ = sums_bytes_ + message_bytes_ + 2 * sizeof(float) * channels_;
  }

  void Run(const RunContext& context) override {
    const float* rstd = in<float>(Backward::kRstd);
    const MaskedGradient<T, N> g{
        {in<float>(Backward::kMean), rstd, in<float>(Backward::kGamma), in<float>(Backward::kBeta)},
        channels_,
        in<T>(Backward::kDy),
        in<T>(Backward::kX),
        in<T>(Backward::kY),
        relu_};
    const OwnGradients own{ChannelSums<2, N>(device_.stream, counted_.all(), channels_,
                                             memory_.workspace, GradientSums<T, N>{counted_, g}),
                           counted_, rstd};
    if (context.sum_over_ranks) {
      const RankMessage message{reinterpret_cast<double*>(memory_.workspace + sums_bytes_),
                                channels_};
      message.SumOverRanks(context, device_.stream, own);
      Finish(own, message);
    } else {
      Finish(own, own);
    }
    ForMatrix<N>(device_.stream, counted_.all(), channels_,
                 ApplyBackward<T, N>{counted_, g, shift(), slope(), out<T>(Backward::kDx),
                                     out<T>(Backward::kDresidual)});
  }

  // `all`: what dx is made with.
  template <typename Source>
  void Finish(OwnGradients own, Source all) const {
    float *dgamma = out<float>(Backward::kDgamma), *dbeta = out<float>(Backward::kDbeta);
    float *shift_out = shift(), *slope_out = slope();
    ForEach(device_.stream, channels_, [=] __device__(int64_t c) {
      const TwoSums mine = own.At(c), sums = all.At(c);
      if (dbeta != nullptr) dbeta[c] = static_cast<float>(mine.first);
      if (dgamma != nullptr) dgamma[c] = static_cast<float>(mine.second);
      shift_out[c] = static_cast<float>(sums.first / sums.count);
      slope_out[c] = static_cast<float>(own.rstd[c] * sums.second / sums.count);
    });
  }

 private:
  float* shift() const {
    return reinterpret_cast<float*>(memory_.workspace + sums_bytes_ + message_bytes_);
  }
  float* slope() const { return shift() + channels_; }

  const bool relu_;
  const int64_t channels_;
  const CountedPixels counted_;
  const size_t sums_bytes_, message_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakeBatchNormBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<BatchNormBackward>(spec, device, spec.inputs[Backward::kX].shape[1]);
}

}  // namespace carole::cuda
