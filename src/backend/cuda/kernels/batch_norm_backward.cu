// Backward pass of batch normalization; src/backend/ops/batch_norm.h has the formulas.
// batch_norm.cu explains the data layout, the valid pixels and why the speed of memory is all that
// counts.
//
// The results are, with g = dy [+ dy2], set to 0 where the ReLU did not pass:
//   dbeta = sum g;
//   dgamma = rstd * sum g * (x - mean);
//   dresidual = g;
//   dx = scale * (g - shift - (x - mean) * slope) [+ addend];
//   scale = gamma * rstd;  shift = dbeta / n;  slope = rstd * dgamma / n;
// dx needs the sums over all pixels, so the tensors must be read twice.
//
// The phases:
//   1. Sums. ChannelSums() sums g and g * (x - mean) of each channel. If there is an output
//      dresidual, this pass also writes g there.
//   2. For each channel: dgamma, dbeta, shift and slope (WriteGradients). With synchronized batch
//      norm, dgamma and dbeta are the sums of this rank. Shift and slope are those of all ranks, so
//      an all-reduce of the sums comes before them.
//   3. Apply. ForMatrix() computes dx of all pixels, from the last one to the first, for the cache.
//      If phase 1 wrote g, this pass reads g and x only: no dy2, no mask (GradientInputs::Masked).
//
// The inputs. dy and x are always there. The others depend on the net:
//   * dy2 is a second gradient of y, if two operations read y (residual blocks).
//   * addend is a gradient that is added to dx. In ResNet-50, 15 such sums used to be kernels of
//     their own. Each needed two reads and a write more than this kernel.
//   * dy may be a slice of the channels of a larger tensor (the gradient of a concatenation, in
//     Inception). It is read where it lies, from channel dy_begin on.
//   * The mask of the ReLU comes from one of three sources:
//       - Without a residual, y is computed again from x, gamma and beta, with the same bits as in
//         forward. This reads nothing more.
//       - After a residual, forward wrote a bit for each element (ReluBitmask). For bf16 these are
//         an eighth of the bytes of y.
//       - Without these bits, y is read.
//
// Why the inputs are template parameters (ExtraInputs). Each operand takes registers for every read
// in flight, also if it is null at run time. With dy and x alone, 4 pixels are in flight in each
// thread; with more operands, 2. So kernels are compiled for three sets: dy and x; dy2 and bits;
// dy2 and y. Within a set an operand may still be null.
//
// A worked example. One channel, 4 pixels, gamma = 2, beta = 0, epsilon = 0:
//   x = 1 3 1 3: mean = 2, rstd = 1; y = relu(-2 2 -2 2) = 0 2 0 2
//   dy = 1 1 1 3: g = 0 1 0 3; dbeta = sum g = 4; dgamma = 1 * (1 * 1 + 3 * 1) = 4
//   shift = 4/4 = 1; slope = 1 * 4/4 = 1; scale = 2
//   dx = 2 * (0-1+1, 1-1-1, 0-1+1, 3-1-1) = 0 -2 0 2
// As it must be, dx sums to 0, and so does dx * (x - mean).
#include <type_traits>

#include "src/backend/cuda/kernels/batch_norm.h"

namespace carole::cuda {
namespace {

constexpr auto kBackIn = kPosition<BatchNormBackwardInputs>;
constexpr auto kBackOut = kPosition<BatchNormBackwardOutputs>;

// The inputs in addition to dy and x for which a kernel is compiled: none; dy2, addend and
// ReluBitmask; dy2, addend and y. More operands take registers, and leave fewer reads in flight.
enum class ExtraInputs : uint8_t { kNone, kDy2AndBitmask, kDy2AndY };

// The tensors from which g is computed: dy + dy2 where the ReLU passed. y and relu_bitmask are null
// if the mask is computed from x.
template <typename T, int N>
struct GradientInputs {
  NormParameters parameters;
  ValidPixels valid_pixels;
  int64_t channels, dy_channels;
  const T *dy, *dy2, *x, *y;  // dy points to the first channel of x
  ReluBitmask<N> relu_bitmask;
  T* dresidual;
  Relu relu;

  ExtraInputs extra_inputs() const {
    if (relu.present && y != nullptr) return ExtraInputs::kDy2AndY;
    return dy2 != nullptr || (relu.present && relu_bitmask.bytes != nullptr)
               ? ExtraInputs::kDy2AndBitmask
               : ExtraInputs::kNone;
  }
  // Returns the inputs of the last pass: if the first pass wrote g to dresidual, only g and x.
  GradientInputs Masked() const {
    GradientInputs g = *this;
    if (dresidual == nullptr) return g;
    g.dy = dresidual;
    g.dy_channels = channels;
    g.dy2 = g.y = nullptr;
    g.relu_bitmask = {};
    g.relu.present = false;
    return g;
  }
};

// Reads dy, x and the extra inputs of a pack of elements, and computes g.
template <typename T, int N, ExtraInputs kExtraInputs>
struct MaskedGradient {
  static constexpr bool kDyAndXOnly = kExtraInputs == ExtraInputs::kNone;
  static constexpr int kReadsInFlight = kDyAndXOnly ? 4 : 2;
  GradientInputs<T, N> from;

  struct Nothing {};
  struct Packs {
    Pack<T, N> dy, x;
    std::conditional_t<kDyAndXOnly, Nothing, Pack<T, N>> dy2;
    std::conditional_t<kExtraInputs == ExtraInputs::kDy2AndY, Pack<T, N>, Nothing> y;
    std::conditional_t<kExtraInputs == ExtraInputs::kDy2AndBitmask, typename ReluBitmask<N>::Bits,
                       Nothing>
        bits;
  };
  struct Values {
    Floats<N> g, x;
  };
  __device__ int64_t ElementIndex(const NormColumns<N>& column, int64_t pixel) const {
    return pixel * from.channels + column.channel;
  }
  __device__ Packs Read(const NormColumns<N>& column, int64_t pixel) const {
    const int64_t at = ElementIndex(column, pixel);
    Packs packs{ReadPack<N>(from.dy + pixel * from.dy_channels + column.channel),
                ReadPack<N>(from.x + at),
                {},
                {},
                {}};
    if constexpr (!kDyAndXOnly) {
      if (from.dy2 != nullptr) packs.dy2 = ReadPack<N>(from.dy2 + at);
    }
    if constexpr (kExtraInputs == ExtraInputs::kDy2AndY) packs.y = ReadPack<N>(from.y + at);
    if constexpr (kExtraInputs == ExtraInputs::kDy2AndBitmask) {
      if (from.relu_bitmask.bytes != nullptr) packs.bits = from.relu_bitmask.At(at);
    }
    return packs;
  }
  __device__ Values Mask(const NormColumns<N>& column, const Packs& packs) const {
    Values values{ToFloats(packs.dy), ToFloats(packs.x)};
    Floats<N> relu_output = values.x;
    for (int i = 0; i < N; ++i) relu_output[i] = column.Normalize(values.x[i], i);
    if constexpr (!kDyAndXOnly) {
      if (from.dy2 != nullptr) {
        const Floats<N> more = ToFloats(packs.dy2);
        for (int i = 0; i < N; ++i) values.g[i] += more[i];
      }
    }
    if constexpr (kExtraInputs == ExtraInputs::kDy2AndY) relu_output = ToFloats(packs.y);
    if (!from.relu.present) return values;
    if constexpr (kExtraInputs == ExtraInputs::kDy2AndBitmask) {
      if (from.relu_bitmask.bytes != nullptr) {
        for (int i = 0; i < N; ++i)
          values.g[i] = (packs.bits & ReluBitmask<N>::Mask(i)) != 0 ? values.g[i] : 0;
        return values;
      }
    }
    for (int i = 0; i < N; ++i) values.g[i] = from.relu.Passes(relu_output[i]) ? values.g[i] : 0;
    return values;
  }
};

// The parameters of N channels, and the number of valid pixels.
template <int N>
struct ValidColumns {
  NormColumns<N> forward;
  int64_t valid_pixels;

  __device__ bool IsValid(int64_t pixel) const { return pixel < valid_pixels; }
};

// Sums of g and of g * (x - mean) for ChannelSums(). Writes g to dresidual if there is one.
template <typename T, int N, ExtraInputs kExtraInputs>
struct GradientSums {
  static constexpr int kReadsInFlight = MaskedGradient<T, N, kExtraInputs>::kReadsInFlight;
  MaskedGradient<T, N, kExtraInputs> g;

  __device__ int64_t Pixels() const {
    return g.from.dresidual != nullptr ? g.from.valid_pixels.all() : g.from.valid_pixels.NumValid();
  }
  __device__ ValidColumns<N> Column(int64_t channel) const {
    return {g.from.parameters.template At<N>(channel), g.from.valid_pixels.NumValid()};
  }
  __device__ auto Read(const ValidColumns<N>& column, int64_t pixel) const {
    return g.Read(column.forward, pixel);
  }
  __device__ void Add(const ValidColumns<N>& column, int64_t pixel,
                      const typename MaskedGradient<T, N, kExtraInputs>::Packs& read,
                      Floats<N>* sums) const {
    const auto values = g.Mask(column.forward, read);
    if (g.from.dresidual != nullptr)
      Store<N>(g.from.dresidual + g.ElementIndex(column.forward, pixel), values.g);
    if (!column.IsValid(pixel)) return;
    for (int i = 0; i < N; ++i) {
      sums[0][i] += values.g[i];
      sums[1][i] += values.g[i] * (values.x[i] - column.forward.mean[i]);
    }
  }
};

// Computes dx for ForMatrix():
//   dx = scale * (g - shift - (x - mean) * slope) + addend    for valid pixels
//   dx = scale * g + addend                                   for others
// There may be an addend only if kExtraInputs is not kNone.
template <typename T, int N, ExtraInputs kExtraInputs>
struct ApplyBackward {
  using Masked = MaskedGradient<T, N, kExtraInputs>;
  static constexpr int kReadsInFlight = Masked::kReadsInFlight;
  Masked g;
  const float *shift, *slope;
  const T* addend;
  T* dx;

  struct Nothing {};
  struct Packs {
    typename Masked::Packs g;
    std::conditional_t<Masked::kDyAndXOnly, Nothing, Pack<T, N>> addend;
  };
  struct BackwardColumns : ValidColumns<N> {
    Floats<N> shift, slope;
  };
  __device__ BackwardColumns Column(int64_t channel) const {
    return {{g.from.parameters.template At<N>(channel), g.from.valid_pixels.NumValid()},
            Load<N>(shift + channel),
            Load<N>(slope + channel)};
  }
  __device__ Packs Read(const BackwardColumns& column, int64_t i) const {
    const int64_t pixel = g.from.valid_pixels.FromTheEnd(i);
    Packs packs{g.Read(column.forward, pixel), {}};
    if constexpr (!Masked::kDyAndXOnly) {
      if (addend != nullptr)
        packs.addend = ReadPack<N>(addend + g.ElementIndex(column.forward, pixel));
    }
    return packs;
  }
  __device__ void Write(const BackwardColumns& column, int64_t i, const Packs& read) const {
    const int64_t pixel = g.from.valid_pixels.FromTheEnd(i);
    auto values = g.Mask(column.forward, read.g);
    for (int n = 0; n < N; ++n) {
      float centered = values.g[n];
      if (column.IsValid(pixel)) {
        centered -= column.shift[n];
        centered -= (values.x[n] - column.forward.mean[n]) * column.slope[n];
      }
      values.g[n] = column.forward.scale[n] * centered;
    }
    if constexpr (!Masked::kDyAndXOnly) {
      if (addend != nullptr) {
        const Floats<N> added = ToFloats(read.addend);
        for (int n = 0; n < N; ++n) values.g[n] += added[n];
      }
    }
    Store<N>(dx + g.ElementIndex(column.forward, pixel), values.g);
  }
};

// The second phase: dbeta and dgamma from the sums of this rank, shift and slope from the sums of
// all ranks that take part.
struct WriteGradients {
  ValidPixels valid_pixels;
  const float* rstd;
  float *dgamma, *dbeta, *shift, *slope;

  __device__ TwoSums WriteLocal(int64_t c, const double* sums) const {
    const TwoSums own{sums[0], sums[1] * rstd[c], static_cast<double>(valid_pixels.NumValid())};
    if (dbeta != nullptr) dbeta[c] = static_cast<float>(own.first);
    if (dgamma != nullptr) dgamma[c] = static_cast<float>(own.second);
    return own;
  }
  __device__ void WriteGlobal(int64_t c, const TwoSums& all) const {
    shift[c] = static_cast<float>(all.first / all.count);
    slope[c] = static_cast<float>(rstd[c] * all.second / all.count);
  }
};

template <typename T, int N>
class BatchNormBackward : public CudaKernel {
 public:
  BatchNormBackward(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        relu_(spec.attributes.as<BatchNormAttributes>()),
        dy_begin_(spec.attributes.as<BatchNormAttributes>().dy_begin),
        channels_(in_shape(kBackIn.x)[1]),
        valid_pixels_(in_shape(kBackIn.x), device.run_context),
        sums_(valid_pixels_.all(), channels_) {
    workspace_bytes_ = sums_.workspace_bytes();
  }

  void Run(const RunContext& context) override {
    const float* rstd = in<float>(kBackIn.rstd);
    const GradientInputs<T, N> g{
        {in<float>(kBackIn.mean), rstd, in<float>(kBackIn.gamma), in<float>(kBackIn.beta)},
        valid_pixels_,
        channels_,
        in_shape(kBackIn.dy)[1],
        in<T>(kBackIn.dy) + dy_begin_,
        in<T>(kBackIn.dy2),
        in<T>(kBackIn.x),
        in<T>(kBackIn.y),
        {in<uint8_t>(kBackIn.relu_bitmask)},
        out<T>(kBackOut.dresidual),
        relu_};
    const WriteGradients write{
        valid_pixels_, rstd,   out<float>(kBackOut.dgamma), out<float>(kBackOut.dbeta),
        shift(),       slope()};
    sums_.Run(context, device_.stream, memory_.workspace, write,
              [&](const auto& finish) { Sum(g, finish); });
    Apply(g.Masked());
  }

 private:
  // Calls f.operator()<extra_inputs>().
  template <typename F>
  static void WithExtraInputs(ExtraInputs extra_inputs, const F& f) {
    if (extra_inputs == ExtraInputs::kDy2AndY)
      return f.template operator()<ExtraInputs::kDy2AndY>();
    if (extra_inputs == ExtraInputs::kDy2AndBitmask)
      return f.template operator()<ExtraInputs::kDy2AndBitmask>();
    f.template operator()<ExtraInputs::kNone>();
  }
  template <typename Finish>
  void Sum(const GradientInputs<T, N>& g, const Finish& finish) const {
    WithExtraInputs(g.extra_inputs(), [&]<ExtraInputs kExtraInputs>() {
      ChannelSums<2, N>(device_.stream, valid_pixels_.all(), channels_, memory_.workspace,
                        GradientSums<T, N, kExtraInputs>{{g}}, finish);
    });
  }
  void Apply(const GradientInputs<T, N>& g) const {
    const T* addend = in<T>(kBackIn.addend);
    T* dx = out<T>(kBackOut.dx);
    const ExtraInputs extra_inputs = addend != nullptr && g.extra_inputs() == ExtraInputs::kNone
                                         ? ExtraInputs::kDy2AndBitmask
                                         : g.extra_inputs();
    WithExtraInputs(extra_inputs, [&]<ExtraInputs kExtraInputs>() {
      ForMatrix<N>(device_.stream, valid_pixels_.all(), channels_,
                   ApplyBackward<T, N, kExtraInputs>{{g}, shift(), slope(), addend, dx});
    });
  }
  float* shift() const { return sums_.shift(memory_.workspace); }
  float* slope() const { return sums_.slope(memory_.workspace); }

  const Relu relu_;
  const int64_t dy_begin_, channels_;
  const ValidPixels valid_pixels_;
  const BackwardSums<N> sums_;
};

bool IsTraining(const OpSpec& spec, const Device& device) {
  return SupportsTypes(spec, device) && spec.attributes.as<BatchNormAttributes>().training;
}

std::unique_ptr<Kernel> MakeBatchNormBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<BatchNormBackward>(spec, device, spec.inputs[kBackIn.x].shape[1]);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kBatchNormBackward, .make = MakeBatchNormBackward, .supports = IsTraining},
};

}  // namespace

KernelRows BatchNormBackwardKernels() { return kRows; }

}  // namespace carole::cuda
