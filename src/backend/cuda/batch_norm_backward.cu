#include "src/backend/cuda/batch_norm.h"

namespace carole::cuda {
namespace {

using Backward = BatchNormBackwardPlaces;

// g, dy + dy2 where the ReLU let y through, beside x. With a residual the first pass over the
// pixels that count leaves g in dresidual, where the last pass finds it and needs no mask.
template <typename T, int N>
struct MaskedGradient {
  Channels parameters;
  CountedPixels counted;
  int64_t channels;
  const T *dy, *dy2, *x, *y;
  T* dresidual;
  Relu relu;

  struct Packs {
    Pack<T, N> dy, dy2, x, y;
  };
  struct Values {
    Floats<N> g, x;
  };
  __device__ int64_t Place(const Columns<N>& column, int64_t pixel) const {
    return pixel * channels + column.channel;
  }
  __device__ Packs Read(const Columns<N>& column, int64_t pixel, bool has_g = false) const {
    const int64_t at = Place(column, pixel);
    Packs packs{ReadPack<N>((has_g ? dresidual : dy) + at), {}, ReadPack<N>(x + at), {}};
    if (dy2 != nullptr && !has_g) packs.dy2 = ReadPack<N>(dy2 + at);
    if (relu.present && y != nullptr && !has_g) packs.y = ReadPack<N>(y + at);
    return packs;
  }
  __device__ Values Mask(const Columns<N>& column, const Packs& packs, bool has_g = false) const {
    Values values{ToFloats(packs.dy), ToFloats(packs.x)};
    if (has_g) return values;
    if (dy2 != nullptr) {
      const Floats<N> more = ToFloats(packs.dy2);
      for (int i = 0; i < N; ++i) values.g[i] += more[i];
    }
    if (!relu.present) return values;
    const Floats<N> stored = ToFloats(packs.y);
    for (int i = 0; i < N; ++i) {
      const float passed = y != nullptr ? stored[i] : column.Normalize(values.x[i], i);
      values.g[i] = relu.Passes(passed) ? values.g[i] : 0;
    }
    return values;
  }
  __device__ void KeepForResidual(const Columns<N>& column, int64_t pixel,
                                  const Floats<N>& g) const {
    if (dresidual != nullptr) Store<N>(dresidual + Place(column, pixel), g);
  }
};

// Sums of g and of g * (x - mean).
template <typename T, int N>
struct GradientSums {
  static constexpr int kAhead = 2;
  MaskedGradient<T, N> g;

  __device__ int64_t Pixels() const { return g.counted.Count(); }
  __device__ Columns<N> Column(int64_t channel) const {
    return g.parameters.template At<N>(channel);
  }
  __device__ auto Read(const Columns<N>& column, int64_t pixel) const {
    return g.Read(column, pixel);
  }
  __device__ void Add(const Columns<N>& column, int64_t pixel,
                      const typename MaskedGradient<T, N>::Packs& read, Floats<N>* sums) const {
    const auto values = g.Mask(column, read);
    g.KeepForResidual(column, pixel, values.g);
    for (int i = 0; i < N; ++i) {
      sums[0][i] += values.g[i];
      sums[1][i] += values.g[i] * (values.x[i] - column.mean[i]);
    }
  }
};

// dx = scale * (g - shift - (x - mean) * slope) + addend; rows that do not count: scale * g +
// addend.
template <typename T, int N>
struct ApplyBackward {
  static constexpr int kAhead = 2;
  MaskedGradient<T, N> g;
  const float *shift, *slope;
  const T* addend;
  T* dx;

  struct Packs {
    typename MaskedGradient<T, N>::Packs g;
    Pack<T, N> addend;
  };
  struct BackwardColumns {
    Columns<N> forward;
    Floats<N> shift, slope;
    int64_t counted;

    __device__ bool Counts(int64_t pixel) const { return pixel < counted; }
  };
  __device__ BackwardColumns Column(int64_t channel) const {
    return {g.parameters.template At<N>(channel), Load<N>(shift + channel),
            Load<N>(slope + channel), g.counted.Count()};
  }
  __device__ bool HasG(const BackwardColumns& column, int64_t pixel) const {
    return g.dresidual != nullptr && column.Counts(pixel);
  }
  __device__ Packs Read(const BackwardColumns& column, int64_t i) const {
    const int64_t pixel = g.counted.FromTheEnd(i);
    Packs packs{g.Read(column.forward, pixel, HasG(column, pixel)), {}};
    if (addend != nullptr) packs.addend = ReadPack<N>(addend + g.Place(column.forward, pixel));
    return packs;
  }
  __device__ void Write(const BackwardColumns& column, int64_t i, const Packs& read) const {
    const int64_t pixel = g.counted.FromTheEnd(i);
    auto values = g.Mask(column.forward, read.g, HasG(column, pixel));
    const Floats<N> added = ToFloats(read.addend);
    if (!column.Counts(pixel)) g.KeepForResidual(column.forward, pixel, values.g);
    for (int n = 0; n < N; ++n) {
      float centred = values.g[n];
      if (column.Counts(pixel)) {
        centred -= column.shift[n];
        centred -= (values.x[n] - column.forward.mean[n]) * column.slope[n];
      }
      values.g[n] = column.forward.scale[n] * centred;
      if (addend != nullptr) values.g[n] += added[n];
    }
    Store<N>(dx + g.Place(column.forward, pixel), values.g);
  }
};

// The second pass: this rank's dbeta and dgamma; and what dx is made with, from all that count.
struct WriteGradients {
  CountedPixels counted;
  const float* rstd;
  float *dgamma, *dbeta, *shift, *slope;

  __device__ TwoSums Own(int64_t c, const double* sums) const {
    const TwoSums own{sums[0], sums[1] * rstd[c], static_cast<double>(counted.Count())};
    if (dbeta != nullptr) dbeta[c] = static_cast<float>(own.first);
    if (dgamma != nullptr) dgamma[c] = static_cast<float>(own.second);
    return own;
  }
  __device__ void ForDx(int64_t c, const TwoSums& all) const {
    shift[c] = static_cast<float>(all.first / all.count);
    slope[c] = static_cast<float>(rstd[c] * all.second / all.count);
  }
};

struct FinishOwn {
  WriteGradients write;
  __device__ void operator()(int64_t c, const double* sums) const {
    write.ForDx(c, write.Own(c, sums));
  }
};

struct TellRanks {
  WriteGradients write;
  RankMessage message;
  __device__ void operator()(int64_t c, const double* sums) const {
    message.Put(c, write.Own(c, sums));
  }
};

template <typename T, int N>
class BatchNormBackward : public CudaKernel {
 public:
  BatchNormBackward(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        relu_(spec.attributes_as<BatchNormAttributes>()),
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
        counted_,
        channels_,
        in<T>(Backward::kDy),
        in<T>(Backward::kDy2),
        in<T>(Backward::kX),
        in<T>(Backward::kY),
        out<T>(Backward::kDresidual),
        relu_};
    const WriteGradients write{
        counted_, rstd,   out<float>(Backward::kDgamma), out<float>(Backward::kDbeta),
        shift(),  slope()};
    if (context.sum_over_ranks) {
      const RankMessage message{reinterpret_cast<double*>(memory_.workspace + sums_bytes_),
                                channels_};
      Sum(g, TellRanks{write, message});
      message.SumOverRanks(context);
      TakeRanksSums(write, message);
    } else {
      Sum(g, FinishOwn{write});
    }
    ForMatrix<N>(
        device_.stream, counted_.all(), channels_,
        ApplyBackward<T, N>{g, shift(), slope(), in<T>(Backward::kAddend), out<T>(Backward::kDx)});
  }

  // Public, as nvcc wants it of a function that holds a device lambda.
  void TakeRanksSums(const WriteGradients& write, const RankMessage& message) const {
    ForEach(device_.stream, channels_,
            [=] __device__(int64_t c) { write.ForDx(c, message.At(c)); });
  }

 private:
  template <typename Finish>
  void Sum(const MaskedGradient<T, N>& g, Finish finish) const {
    ChannelSums<2, N>(device_.stream, counted_.all(), channels_, memory_.workspace,
                      GradientSums<T, N>{g}, finish);
  }
  float* shift() const {
    return reinterpret_cast<float*>(memory_.workspace + sums_bytes_ + message_bytes_);
  }
  float* slope() const { return shift() + channels_; }

  const Relu relu_;
  const int64_t channels_;
  const CountedPixels counted_;
  const size_t sums_bytes_, message_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakeBatchNormBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<BatchNormBackward>(spec, device, spec.inputs[Backward::kX].shape[1]);
}

}  // namespace carole::cuda
