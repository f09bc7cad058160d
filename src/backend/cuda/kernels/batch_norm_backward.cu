// Backward of batch norm; op.h has the formulas.
#include <type_traits>

#include "src/backend/cuda/kernels/batch_norm.h"

namespace carole::cuda {
namespace {

using Backward = BatchNormBackwardPlaces;

// What may be there beside dy and x, which takes registers and with them the reads that are under
// way: nothing; dy2 and the bits of what passed; dy2 and y.
enum class Beside : uint8_t { kNothing, kReluBitmask, kY };

// Of what g is made: dy + dy2 where the ReLU let y through. y and passed are null where x tells it.
template <typename T, int N>
struct GradientSources {
  Channels parameters;
  CountedPixels counted;
  int64_t channels, dy_channels;
  const T *dy, *dy2, *x, *y;  // dy: at x's first channel
  Passed<N> passed;
  T* dresidual;
  Relu relu;

  Beside beside() const {
    if (relu.present && y != nullptr) return Beside::kY;
    return dy2 != nullptr || (relu.present && passed.bytes != nullptr) ? Beside::kReluBitmask
                                                                       : Beside::kNothing;
  }
  // After the first pass, which leaves g in dresidual where there is one.
  GradientSources Masked() const {
    GradientSources g = *this;
    if (dresidual == nullptr) return g;
    g.dy = dresidual;
    g.dy_channels = channels;
    g.dy2 = g.y = nullptr;
    g.passed = {};
    g.relu.present = false;
    return g;
  }
};

// g beside x.
template <typename T, int N, Beside kBeside>
struct MaskedGradient {
  static constexpr bool kAlone = kBeside == Beside::kNothing;
  static constexpr int kAhead = kAlone ? 4 : 2;
  GradientSources<T, N> from;

  struct Nothing {};
  struct Packs {
    Pack<T, N> dy, x;
    std::conditional_t<kAlone, Nothing, Pack<T, N>> dy2;
    std::conditional_t<kBeside == Beside::kY, Pack<T, N>, Nothing> y;
    std::conditional_t<kBeside == Beside::kReluBitmask, typename Passed<N>::Bits, Nothing> passed;
  };
  struct Values {
    Floats<N> g, x;
  };
  __device__ int64_t Place(const Columns<N>& column, int64_t pixel) const {
    return pixel * from.channels + column.channel;
  }
  __device__ Packs Read(const Columns<N>& column, int64_t pixel) const {
    const int64_t at = Place(column, pixel);
    Packs packs{ReadPack<N>(from.dy + pixel * from.dy_channels + column.channel),
                ReadPack<N>(from.x + at),
                {},
                {},
                {}};
    if constexpr (!kAlone) {
      if (from.dy2 != nullptr) packs.dy2 = ReadPack<N>(from.dy2 + at);
    }
    if constexpr (kBeside == Beside::kY) packs.y = ReadPack<N>(from.y + at);
    if constexpr (kBeside == Beside::kReluBitmask) {
      if (from.passed.bytes != nullptr) packs.passed = from.passed.At(at);
    }
    return packs;
  }
  __device__ Values Mask(const Columns<N>& column, const Packs& packs) const {
    Values values{ToFloats(packs.dy), ToFloats(packs.x)};
    Floats<N> passed = values.x;
    for (int i = 0; i < N; ++i) passed[i] = column.Normalize(values.x[i], i);
    if constexpr (!kAlone) {
      if (from.dy2 != nullptr) {
        const Floats<N> more = ToFloats(packs.dy2);
        for (int i = 0; i < N; ++i) values.g[i] += more[i];
      }
    }
    if constexpr (kBeside == Beside::kY) passed = ToFloats(packs.y);
    if (!from.relu.present) return values;
    if constexpr (kBeside == Beside::kReluBitmask) {
      if (from.passed.bytes != nullptr) {
        for (int i = 0; i < N; ++i)
          values.g[i] = (packs.passed & Passed<N>::Mask(i)) != 0 ? values.g[i] : 0;
        return values;
      }
    }
    for (int i = 0; i < N; ++i) values.g[i] = from.relu.Passes(passed[i]) ? values.g[i] : 0;
    return values;
  }
};

// Which pixels count, beside what the first and the last pass need of N channels.
template <int N>
struct CountedColumns {
  Columns<N> forward;
  int64_t counted;

  __device__ bool Counts(int64_t pixel) const { return pixel < counted; }
};

// Sums of g and of g * (x - mean).
template <typename T, int N, Beside kBeside>
struct GradientSums {
  static constexpr int kAhead = MaskedGradient<T, N, kBeside>::kAhead;
  MaskedGradient<T, N, kBeside> g;

  __device__ int64_t Pixels() const {
    return g.from.dresidual != nullptr ? g.from.counted.all() : g.from.counted.Count();
  }
  __device__ CountedColumns<N> Column(int64_t channel) const {
    return {g.from.parameters.template At<N>(channel), g.from.counted.Count()};
  }
  __device__ auto Read(const CountedColumns<N>& column, int64_t pixel) const {
    return g.Read(column.forward, pixel);
  }
  __device__ void Add(const CountedColumns<N>& column, int64_t pixel,
                      const typename MaskedGradient<T, N, kBeside>::Packs& read,
                      Floats<N>* sums) const {
    const auto values = g.Mask(column.forward, read);
    if (g.from.dresidual != nullptr)
      Store<N>(g.from.dresidual + g.Place(column.forward, pixel), values.g);
    if (!column.Counts(pixel)) return;
    for (int i = 0; i < N; ++i) {
      sums[0][i] += values.g[i];
      sums[1][i] += values.g[i] * (values.x[i] - column.forward.mean[i]);
    }
  }
};

// dx = scale * (g - shift - (x - mean) * slope) + addend; rows that do not count: scale * g +
// addend, which may be there where something is beside dy and x.
template <typename T, int N, Beside kBeside>
struct ApplyBackward {
  using Masked = MaskedGradient<T, N, kBeside>;
  static constexpr int kAhead = Masked::kAhead;
  Masked g;
  const float *shift, *slope;
  const T* addend;
  T* dx;

  struct Nothing {};
  struct Packs {
    typename Masked::Packs g;
    std::conditional_t<Masked::kAlone, Nothing, Pack<T, N>> addend;
  };
  struct BackwardColumns : CountedColumns<N> {
    Floats<N> shift, slope;
  };
  __device__ BackwardColumns Column(int64_t channel) const {
    return {{g.from.parameters.template At<N>(channel), g.from.counted.Count()},
            Load<N>(shift + channel),
            Load<N>(slope + channel)};
  }
  __device__ Packs Read(const BackwardColumns& column, int64_t i) const {
    const int64_t pixel = g.from.counted.FromTheEnd(i);
    Packs packs{g.Read(column.forward, pixel), {}};
    if constexpr (!Masked::kAlone) {
      if (addend != nullptr) packs.addend = ReadPack<N>(addend + g.Place(column.forward, pixel));
    }
    return packs;
  }
  __device__ void Write(const BackwardColumns& column, int64_t i, const Packs& read) const {
    const int64_t pixel = g.from.counted.FromTheEnd(i);
    auto values = g.Mask(column.forward, read.g);
    for (int n = 0; n < N; ++n) {
      float centered = values.g[n];
      if (column.Counts(pixel)) {
        centered -= column.shift[n];
        centered -= (values.x[n] - column.forward.mean[n]) * column.slope[n];
      }
      values.g[n] = column.forward.scale[n] * centered;
    }
    if constexpr (!Masked::kAlone) {
      if (addend != nullptr) {
        const Floats<N> added = ToFloats(read.addend);
        for (int n = 0; n < N; ++n) values.g[n] += added[n];
      }
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
        dy_begin_(spec.attributes_as<BatchNormAttributes>().dy_begin),
        channels_(in_shape(Backward::kX)[1]),
        counted_(in_shape(Backward::kX), device.numbers),
        sums_bytes_(AlignUp(PartialSumsBytes<2, N>(counted_.all(), channels_))),
        message_bytes_(AlignUp(RankMessage::Bytes(channels_))) {
    workspace_bytes_ = sums_bytes_ + message_bytes_ + 2 * sizeof(float) * channels_;
  }

  void Run(const RunContext& context) override {
    const float* rstd = in<float>(Backward::kRstd);
    const GradientSources<T, N> g{
        {in<float>(Backward::kMean), rstd, in<float>(Backward::kGamma), in<float>(Backward::kBeta)},
        counted_,
        channels_,
        in_shape(Backward::kDy)[1],
        in<T>(Backward::kDy) + dy_begin_,
        in<T>(Backward::kDy2),
        in<T>(Backward::kX),
        in<T>(Backward::kY),
        {in<uint8_t>(Backward::kReluBitmask)},
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
    Apply(g.Masked());
  }

  // Public, as nvcc wants it of a function that holds a device lambda.
  void TakeRanksSums(const WriteGradients& write, const RankMessage& message) const {
    ForEach(device_.stream, channels_,
            [=] __device__(int64_t c) { write.ForDx(c, message.At(c)); });
  }

 private:
  // Calls f.operator()<what is beside dy and x>().
  template <typename F>
  static void With(Beside beside, const F& f) {
    if (beside == Beside::kY) return f.template operator()<Beside::kY>();
    if (beside == Beside::kReluBitmask) return f.template operator()<Beside::kReluBitmask>();
    f.template operator()<Beside::kNothing>();
  }
  template <typename Finish>
  void Sum(const GradientSources<T, N>& g, Finish finish) const {
    With(g.beside(), [&]<Beside kBeside>() {
      ChannelSums<2, N>(device_.stream, counted_.all(), channels_, memory_.workspace,
                        GradientSums<T, N, kBeside>{{g}}, finish);
    });
  }
  void Apply(const GradientSources<T, N>& g) const {
    const T* addend = in<T>(Backward::kAddend);
    T* dx = out<T>(Backward::kDx);
    const Beside beside =
        addend != nullptr && g.beside() == Beside::kNothing ? Beside::kReluBitmask : g.beside();
    With(beside, [&]<Beside kBeside>() {
      ForMatrix<N>(device_.stream, counted_.all(), channels_,
                   ApplyBackward<T, N, kBeside>{{g}, shift(), slope(), addend, dx});
    });
  }
  float* shift() const {
    return reinterpret_cast<float*>(memory_.workspace + sums_bytes_ + message_bytes_);
  }
  float* slope() const { return shift() + channels_; }

  const Relu relu_;
  const int64_t dy_begin_, channels_;
  const CountedPixels counted_;
  const size_t sums_bytes_, message_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakeBatchNormBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<BatchNormBackward>(spec, device, spec.inputs[Backward::kX].shape[1]);
}

}  // namespace carole::cuda
