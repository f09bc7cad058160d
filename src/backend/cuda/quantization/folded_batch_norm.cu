// A batch norm that is folded into the layer before it, and its gradient. In memory, z, c and y are
// matrices (pixels, K), and weights are matrices (elements of a filter, K). kernels/batch_norm.cu
// explains the data layout, the valid pixels and the statistics.
//
// All passes but the sums multiply and add by channel: AffineColumns. Their factors are made by
// each thread, from a few values of its channels.
#include "src/backend/cuda/kernels/batch_statistics.h"
#include "src/backend/cuda/quantization/floats.h"
#include "src/backend/ops/folded_batch_norm.h"

namespace carole::cuda {
namespace {

constexpr auto kFoldIn = kPosition<FoldWeightsInputs>;
constexpr auto kFoldOut = kPosition<FoldWeightsOutputs>;
constexpr auto kFoldBackIn = kPosition<FoldWeightsBackwardInputs>;
constexpr auto kFoldBackOut = kPosition<FoldWeightsBackwardOutputs>;
constexpr auto kIn = kPosition<FoldedBatchNormInputs>;
constexpr auto kOut = kPosition<FoldedBatchNormOutputs>;
constexpr auto kBackIn = kPosition<FoldedBatchNormBackwardInputs>;
constexpr auto kBackOut = kPosition<FoldedBatchNormBackwardOutputs>;

// N values of a parameter; `otherwise` if it is absent.
template <int N>
__device__ Floats<N> ValuesOr(const float* values, int64_t channel, float otherwise) {
  if (values != nullptr) return Load<N>(values + channel);
  Floats<N> floats;
  for (int i = 0; i < N; ++i) floats[i] = otherwise;
  return floats;
}

// y = (x - center) * scale + shift in the first rows of a matrix, 0 in the others.
template <int N>
struct AffineColumns {
  int64_t channel, rows;
  Floats<N> center, scale, shift;
};

// Computes y of a matrix for ForMatrix(). Of::At<N>(channel) returns AffineColumns<N>.
template <int N, typename Of>
struct Affine {
  static constexpr int kReadsInFlight = 4;
  Of of;
  int64_t channels;
  const float* x;
  float* y;

  __device__ AffineColumns<N> Column(int64_t channel) const { return of.template At<N>(channel); }
  __device__ Pack<float, N> Read(const AffineColumns<N>& column, int64_t row) const {
    return ReadPack<N>(x + row * channels + column.channel);
  }
  __device__ void Write(const AffineColumns<N>& column, int64_t row,
                        const Pack<float, N>& read) const {
    Floats<N> values = ToFloats(read);
    for (int i = 0; i < N; ++i) {
      const float value = fmaf(values[i] - column.center[i], column.scale[i], column.shift[i]);
      values[i] = row < column.rows ? value : 0;
    }
    Store<N>(y + row * channels + column.channel, values);
  }
};

template <int N, typename Of>
void ForAffine(CUstream_st* stream, int64_t rows, int64_t channels, const Of& of, const float* x,
               float* y) {
  ForMatrix<N>(stream, rows, channels, Affine<N, Of>{of, channels, x, y});
}

// The sums over the rows of a matrix of a, and of a * (b - center), for ChannelSums(). The
// functor Of has Rows() and Center<N>(channel).
template <int N, typename Of>
struct ProductSums {
  static constexpr int kReadsInFlight = 4;
  Of of;
  int64_t channels;
  const float *a, *b;

  struct Columns {
    int64_t channel;
    Floats<N> center;
  };
  struct Packs {
    Pack<float, N> a, b;
  };
  __device__ int64_t Pixels() const { return of.Rows(); }
  __device__ Columns Column(int64_t channel) const {
    return {channel, of.template Center<N>(channel)};
  }
  __device__ Packs Read(const Columns& column, int64_t row) const {
    const int64_t at = row * channels + column.channel;
    return {ReadPack<N>(a + at), ReadPack<N>(b + at)};
  }
  __device__ void Add(const Columns& column, int64_t, const Packs& read, Floats<N>* sums) const {
    const Floats<N> left = ToFloats(read.a), right = ToFloats(read.b);
    for (int i = 0; i < N; ++i) {
      sums[0][i] += left[i];
      sums[1][i] += left[i] * (right[i] - column.center[i]);
    }
  }
};

// Folding of weights, forward and backward

struct WriteRm {
  const float* moving_variance;
  double epsilon;
  float* rm;

  __device__ void operator()(int64_t channel) const {
    rm[channel] = static_cast<float>(1 / sqrt(moving_variance[channel] + epsilon));
  }
};

// gamma * rm
struct FoldFactors {
  int64_t rows;
  const float *gamma, *rm;

  template <int N>
  __device__ AffineColumns<N> At(int64_t channel) const {
    AffineColumns<N> columns{channel, rows, {}, ValuesOr<N>(gamma, channel, 1), {}};
    const Floats<N> factors = Load<N>(rm + channel);
    for (int i = 0; i < N; ++i) columns.scale[i] *= factors[i];
    return columns;
  }
};

// Sums over all rows, with center 0.
struct AllRows {
  int64_t rows;

  __device__ int64_t Rows() const { return rows; }
  template <int N>
  __device__ Floats<N> Center(int64_t) const {
    return {};
  }
};

struct WriteDgamma {
  const float* rm;
  float* dgamma;

  __device__ void operator()(int64_t channel, const double* sums) const {
    dgamma[channel] = static_cast<float>(sums[1] * rm[channel]);
  }
};

// The weights as a matrix.
class FoldKernel : public CudaKernel {
 public:
  FoldKernel(const OpSpec& spec, const Device& device, int w)
      : CudaKernel(spec, device),
        channels_(spec.inputs[w].shape[0]),
        rows_(spec.inputs[w].shape.size() / channels_) {}

 protected:
  const int64_t channels_, rows_;
};

template <int N>
class FoldWeights : public FoldKernel {
 public:
  FoldWeights(const OpSpec& spec, const Device& device) : FoldKernel(spec, device, kFoldIn.w) {
    input_layouts_[kFoldIn.w] = output_layouts_[kFoldOut.folded] = Layout::Filter();
  }

  void Run(const RunContext&) override {
    float* rm = out<float>(kFoldOut.rm);
    ForEach(device_.stream, channels_,
            WriteRm{in<float>(kFoldIn.moving_variance),
                    spec_.attributes.as<FoldedBatchNormAttributes>().epsilon, rm});
    ForAffine<N>(device_.stream, rows_, channels_, FoldFactors{rows_, in<float>(kFoldIn.gamma), rm},
                 in<float>(kFoldIn.w), out<float>(kFoldOut.folded));
  }
};

template <int N>
class FoldWeightsBackward : public FoldKernel {
 public:
  FoldWeightsBackward(const OpSpec& spec, const Device& device)
      : FoldKernel(spec, device, kFoldBackIn.w) {
    input_layouts_[kFoldBackIn.dfolded] = input_layouts_[kFoldBackIn.w] = Layout::Filter();
    output_layouts_[kFoldBackOut.dw] = Layout::Filter();
    workspace_bytes_ = PartialSumsBytes<2, N>(rows_, channels_);
  }

  void Run(const RunContext&) override {
    const float *dfolded = in<float>(kFoldBackIn.dfolded), *rm = in<float>(kFoldBackIn.rm);
    if (float* dgamma = out<float>(kFoldBackOut.dgamma)) {
      const ProductSums<N, AllRows> sums{{rows_}, channels_, dfolded, in<float>(kFoldBackIn.w)};
      ChannelSums<2, N>(device_.stream, rows_, channels_, memory_.workspace, sums,
                        WriteDgamma{rm, dgamma});
    }
    if (float* dw = out<float>(kFoldBackOut.dw)) {
      ForAffine<N>(device_.stream, rows_, channels_,
                   FoldFactors{rows_, in<float>(kFoldBackIn.gamma), rm}, dfolded, dw);
    }
  }
};

// The batch norm, forward and backward

// y = c * rb/rm + beta - gamma * mean * rb
struct ForwardFactors {
  int64_t rows;
  const float *gamma, *beta, *rm, *mean, *rb;

  template <int N>
  __device__ AffineColumns<N> At(int64_t channel) const {
    const Floats<N> factors = ValuesOr<N>(gamma, channel, 1), means = Load<N>(mean + channel);
    const Floats<N> of_batch = Load<N>(rb + channel), of_past = Load<N>(rm + channel);
    AffineColumns<N> columns{channel, rows, {}, {}, ValuesOr<N>(beta, channel, 0)};
    for (int i = 0; i < N; ++i) {
      columns.scale[i] = of_batch[i] / of_past[i];
      columns.shift[i] -= factors[i] * means[i] * of_batch[i];
    }
    return columns;
  }
};

template <int N>
class FoldedBatchNorm : public CudaKernel {
 public:
  FoldedBatchNorm(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        a_(spec.attributes.as<FoldedBatchNormAttributes>()),
        statistics_(in_shape(kIn.c), device) {
    if (a_.training) workspace_bytes_ = statistics_.workspace_bytes();
  }
  int InPlaceInput(int output) const override { return output == kOut.y ? kIn.c : -1; }

  void Run(const RunContext& context) override {
    const float *mean = in<float>(kIn.moving_mean), *rm = in<float>(kIn.rm), *rb = rm;
    if (a_.training) {
      const WriteMoments write{a_.epsilon,
                               1 - a_.decay,
                               in<float>(kIn.moving_mean),
                               in<float>(kIn.moving_variance),
                               out<float>(kOut.mean),
                               out<float>(kOut.rb)};
      statistics_.Run(context, in<float>(kIn.z), memory_.workspace, write);
      mean = write.mean;
      rb = write.rstd;
    }
    const int64_t rows = statistics_.pixels().all();
    ForAffine<N>(device_.stream, rows, in_shape(kIn.c)[1],
                 ForwardFactors{rows, in<float>(kIn.gamma), in<float>(kIn.beta), rm, mean, rb},
                 in<float>(kIn.c), out<float>(kOut.y));
  }

 private:
  const FoldedBatchNormAttributes a_;
  const BatchStatistics<float, N> statistics_;
};

// The values of channels that backward reads.
struct BackwardInputs {
  ValidPixels pixels;
  const float *gamma, *rm, *mean, *rb;

  __device__ int64_t Rows() const { return pixels.NumValid(); }
  // gamma * rm * mean, which is about the mean of c. With it, the sum of dy * (c - center) is
  // drb * rm without cancellation.
  template <int N>
  __device__ Floats<N> Center(int64_t channel) const {
    Floats<N> center = ValuesOr<N>(gamma, channel, 1);
    const Floats<N> means = Load<N>(mean + channel), factors = Load<N>(rm + channel);
    for (int i = 0; i < N; ++i) center[i] *= factors[i] * means[i];
    return center;
  }
};

// Writes dgamma and dbeta from the sums of this rank, and the factors of dz from those of all ranks
// that take part.
struct WriteGradients {
  BackwardInputs inputs;
  float *dgamma, *dbeta, *shift, *slope;

  __device__ TwoSums WriteLocal(int64_t c, const double* sums) const {
    if (dbeta != nullptr) dbeta[c] = static_cast<float>(sums[0]);
    if (dgamma != nullptr) dgamma[c] = static_cast<float>(-sums[0] * inputs.mean[c] * inputs.rb[c]);
    return {sums[0], sums[1], static_cast<double>(inputs.Rows())};
  }
  __device__ void WriteGlobal(int64_t c, const TwoSums& all) const {
    const double rb = inputs.rb[c], gamma = inputs.gamma != nullptr ? inputs.gamma[c] : 1;
    const double drb = all.second / inputs.rm[c];
    shift[c] = static_cast<float>(-gamma * rb * all.first / all.count);
    slope[c] = static_cast<float>(-drb * rb * rb * rb / all.count);
  }
};

// dc = dy * rb/rm
struct DcFactors {
  int64_t rows;
  const float *rm, *rb;

  template <int N>
  __device__ AffineColumns<N> At(int64_t channel) const {
    AffineColumns<N> columns{channel, rows, {}, Load<N>(rb + channel), {}};
    const Floats<N> divisors = Load<N>(rm + channel);
    for (int i = 0; i < N; ++i) columns.scale[i] /= divisors[i];
    return columns;
  }
};

// dz = (z - mean) * slope + shift in valid rows
struct DzFactors {
  ValidPixels pixels;
  const float *mean, *slope, *shift;

  template <int N>
  __device__ AffineColumns<N> At(int64_t channel) const {
    return {channel, pixels.NumValid(), Load<N>(mean + channel), Load<N>(slope + channel),
            Load<N>(shift + channel)};
  }
};

template <int N>
class FoldedBatchNormBackward : public CudaKernel {
 public:
  FoldedBatchNormBackward(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        channels_(in_shape(kBackIn.c)[1]),
        pixels_(in_shape(kBackIn.c), device.run_context),
        sums_(pixels_.all(), channels_) {
    workspace_bytes_ = sums_.workspace_bytes();
  }
  // All sums are made before the first output is written.
  int InPlaceInput(int output) const override {
    return output == kBackOut.dc ? kBackIn.dy : output == kBackOut.dz ? kBackIn.z : -1;
  }

  void Run(const RunContext& context) override {
    const BackwardInputs inputs{pixels_, in<float>(kBackIn.gamma), in<float>(kBackIn.rm),
                                in<float>(kBackIn.mean), in<float>(kBackIn.rb)};
    const WriteGradients write{inputs, out<float>(kBackOut.dgamma), out<float>(kBackOut.dbeta),
                               shift(), slope()};
    sums_.Run(context, device_.stream, memory_.workspace, write,
              [&](const auto& finish) { Sum(inputs, finish); });
    const int64_t rows = pixels_.all();
    if (float* dc = out<float>(kBackOut.dc)) {
      ForAffine<N>(device_.stream, rows, channels_, DcFactors{rows, inputs.rm, inputs.rb},
                   in<float>(kBackIn.dy), dc);
    }
    if (float* dz = out<float>(kBackOut.dz)) {
      ForAffine<N>(device_.stream, rows, channels_,
                   DzFactors{pixels_, inputs.mean, slope(), shift()}, in<float>(kBackIn.z), dz);
    }
  }

 private:
  template <typename Finish>
  void Sum(const BackwardInputs& inputs, const Finish& finish) const {
    const ProductSums<N, BackwardInputs> sums{inputs, channels_, in<float>(kBackIn.dy),
                                              in<float>(kBackIn.c)};
    ChannelSums<2, N>(device_.stream, pixels_.all(), channels_, memory_.workspace, sums, finish);
  }
  float* shift() const { return sums_.shift(memory_.workspace); }
  float* slope() const { return sums_.slope(memory_.workspace); }

  const int64_t channels_;
  const ValidPixels pixels_;
  const BackwardSums<N> sums_;
};

std::unique_ptr<Kernel> MakeFoldWeights(const OpSpec& spec, const Device& device) {
  return MakePackedFloats<FoldWeights>(spec, device, spec.inputs[kFoldIn.w].shape[0]);
}
std::unique_ptr<Kernel> MakeFoldWeightsBackward(const OpSpec& spec, const Device& device) {
  return MakePackedFloats<FoldWeightsBackward>(spec, device, spec.inputs[kFoldBackIn.w].shape[0]);
}
std::unique_ptr<Kernel> MakeFoldedBatchNorm(const OpSpec& spec, const Device& device) {
  return MakePackedFloats<FoldedBatchNorm>(spec, device, spec.inputs[kIn.c].shape[1]);
}
std::unique_ptr<Kernel> MakeFoldedBatchNormBackward(const OpSpec& spec, const Device& device) {
  return MakePackedFloats<FoldedBatchNormBackward>(spec, device, spec.inputs[kBackIn.c].shape[1]);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kFoldWeights, .make = MakeFoldWeights, .supports = IsFp32},
    {.kind = op::kFoldWeightsBackward, .make = MakeFoldWeightsBackward, .supports = IsFp32},
    {.kind = op::kFoldedBatchNorm, .make = MakeFoldedBatchNorm, .supports = IsFp32},
    {.kind = op::kFoldedBatchNormBackward, .make = MakeFoldedBatchNormBackward, .supports = IsFp32},
};

}  // namespace

KernelRows FoldedBatchNormKernels() { return kRows; }

}  // namespace carole::cuda
