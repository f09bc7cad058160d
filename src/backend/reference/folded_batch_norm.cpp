// A batch norm that is folded into the layer before it, and its gradient. z, c and y are matrices
// (pixels, K) in memory, weights are matrices (elements of a filter, K). Sums are accumulated in
// double.
#include "src/backend/ops/folded_batch_norm.h"

#include <cmath>
#include <vector>

#include "src/backend/batch_moments.h"
#include "src/backend/batch_rows.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

constexpr auto kFoldIn = kPosition<FoldWeightsInputs>;
constexpr auto kFoldOut = kPosition<FoldWeightsOutputs>;
constexpr auto kFoldBackIn = kPosition<FoldWeightsBackwardInputs>;
constexpr auto kFoldBackOut = kPosition<FoldWeightsBackwardOutputs>;
constexpr auto kIn = kPosition<FoldedBatchNormInputs>;
constexpr auto kOut = kPosition<FoldedBatchNormOutputs>;
constexpr auto kBackIn = kPosition<FoldedBatchNormBackwardInputs>;
constexpr auto kBackOut = kPosition<FoldedBatchNormBackwardOutputs>;

template <typename T>
double ValueOr(const T* values, int64_t i, double fallback) {
  return values != nullptr ? double{values[i]} : fallback;
}

template <typename T>
class FoldWeights : public ReferenceKernel {
 public:
  FoldWeights(const OpSpec& spec, int threads) : ReferenceKernel(spec, threads) {
    input_layouts_[kFoldIn.w] = output_layouts_[kFoldOut.folded] = Layout::Filter();
  }

  void Run(const RunContext&) override {
    const double epsilon = spec_.attributes.as<FoldedBatchNormAttributes>().epsilon;
    const int64_t channels = in_shape(kFoldIn.w)[0];
    const T *w = in<T>(kFoldIn.w), *gamma = in<T>(kFoldIn.gamma);
    const T* moving_variance = in<T>(kFoldIn.moving_variance);
    T *folded = out<T>(kFoldOut.folded), *rm = out<T>(kFoldOut.rm);
    for (int64_t k = 0; k < channels; ++k)
      rm[k] = static_cast<T>(1 / std::sqrt(moving_variance[k] + epsilon));
    ForElements(threads_, in_shape(kFoldIn.w).size(), [&](int64_t i) {
      const int64_t k = i % channels;
      folded[i] = static_cast<T>(w[i] * (ValueOr(gamma, k, 1) * rm[k]));
    });
  }
};

template <typename T>
class FoldWeightsBackward : public ReferenceKernel {
 public:
  FoldWeightsBackward(const OpSpec& spec, int threads) : ReferenceKernel(spec, threads) {
    input_layouts_[kFoldBackIn.dfolded] = input_layouts_[kFoldBackIn.w] = Layout::Filter();
    output_layouts_[kFoldBackOut.dw] = Layout::Filter();
  }

  void Run(const RunContext&) override {
    const Shape& shape = in_shape(kFoldBackIn.w);
    const int64_t channels = shape[0];
    const T *dfolded = in<T>(kFoldBackIn.dfolded), *w = in<T>(kFoldBackIn.w);
    const T *gamma = in<T>(kFoldBackIn.gamma), *rm = in<T>(kFoldBackIn.rm);
    T *dw = out<T>(kFoldBackOut.dw), *dgamma = out<T>(kFoldBackOut.dgamma);
    if (dw != nullptr) {
      ForElements(threads_, shape.size(), [&](int64_t i) {
        const int64_t k = i % channels;
        dw[i] = static_cast<T>(dfolded[i] * (ValueOr(gamma, k, 1) * rm[k]));
      });
    }
    if (dgamma == nullptr) return;
    ForIndices(threads_, channels, [&](int64_t k) {
      double sum = 0;
      for (int64_t i = k; i < shape.size(); i += channels) sum += double{dfolded[i]} * w[i];
      dgamma[k] = static_cast<T>(sum * rm[k]);
    });
  }
};

// The sizes of z, c and y as matrices.
struct Pixels {
  Pixels(const Shape& shape, const RunContext& context)
      : channels(shape[1]),
        all(shape.size() / channels),
        valid(all / shape[0] * ValidRows(context, shape[0])) {}
  int64_t channels, all, valid;
};

template <typename T>
class FoldedBatchNorm : public ReferenceKernel {
 public:
  FoldedBatchNorm(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        a_(spec.attributes.as<FoldedBatchNormAttributes>()),
        sums_memory_(ChannelSums::Size(in_shape(kIn.c)[1])) {}

  void Run(const RunContext& context) override {
    const Pixels pixels(in_shape(kIn.c), context);
    const ChannelSums moments(sums_memory_.data(), pixels.channels);
    if (a_.training) {
      ForIndices(threads_, pixels.channels, [&](int64_t k) { MeasureChannel(pixels, k, moments); });
      moments.count() = static_cast<double>(pixels.valid);
      if (context.sum_over_ranks) CombineMomentsOverRanks(context, moments);
    }
    ForIndices(threads_, pixels.channels, [&](int64_t k) { Apply(pixels, k, moments); });
  }

 private:
  void MeasureChannel(const Pixels& pixels, int64_t k, const ChannelSums& moments) const {
    const T* z = in<T>(kIn.z) + k;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < pixels.valid; ++i) mean += z[i * pixels.channels];
    mean /= static_cast<double>(std::max<int64_t>(pixels.valid, 1));
    for (int64_t i = 0; i < pixels.valid; ++i) {
      const double d = z[i * pixels.channels] - mean;
      squares += d * d;
    }
    moments.first(k) = mean;
    moments.second(k) = squares;
  }

  void Apply(const Pixels& pixels, int64_t k, const ChannelSums& moments) const {
    const double rm = in<T>(kIn.rm)[k], gamma = ValueOr(in<T>(kIn.gamma), k, 1);
    double mean = in<T>(kIn.moving_mean)[k], rb = rm;
    if (a_.training) {
      const double n = moments.count(), variance = moments.second(k) / n;
      mean = out<T>(kOut.mean)[k] = static_cast<T>(moments.first(k));
      rb = out<T>(kOut.rb)[k] = static_cast<T>(1 / std::sqrt(variance + a_.epsilon));
      Move(in<T>(kIn.moving_mean)[k], moments.first(k));
      Move(in<T>(kIn.moving_variance)[k], variance * (n > 1 ? n / (n - 1) : 1));
    }
    const double scale = rb / rm, shift = ValueOr(in<T>(kIn.beta), k, 0) - gamma * mean * rb;
    const T* c = in<T>(kIn.c) + k;
    T* y = out<T>(kOut.y) + k;
    for (int64_t i = 0; i < pixels.all; ++i)
      y[i * pixels.channels] = static_cast<T>(c[i * pixels.channels] * scale + shift);
  }

  void Move(T& moving, double batch) const {
    moving = static_cast<T>(moving + (1 - a_.decay) * (batch - moving));
  }

  const FoldedBatchNormAttributes a_;
  std::vector<double> sums_memory_;
};

template <typename T>
class FoldedBatchNormBackward : public ReferenceKernel {
 public:
  FoldedBatchNormBackward(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads), sums_memory_(ChannelSums::Size(in_shape(kBackIn.z)[1])) {}

  void Run(const RunContext& context) override {
    const Pixels pixels(in_shape(kBackIn.z), context);
    const ChannelSums sums(sums_memory_.data(), pixels.channels);
    ForIndices(threads_, pixels.channels, [&](int64_t k) { SumChannel(pixels, k, sums); });
    sums.count() = static_cast<double>(pixels.valid);
    if (context.sum_over_ranks) context.sum_over_ranks(sums.all());
    ForIndices(threads_, pixels.channels, [&](int64_t k) { Apply(pixels, k, sums); });
  }

 private:
  // first(k) = sum dy, second(k) = sum(dy * c).
  void SumChannel(const Pixels& pixels, int64_t k, const ChannelSums& sums) const {
    const T *dy = in<T>(kBackIn.dy) + k, *c = in<T>(kBackIn.c) + k;
    double sum = 0, products = 0;
    for (int64_t i = 0; i < pixels.valid; ++i) {
      sum += dy[i * pixels.channels];
      products += double{dy[i * pixels.channels]} * c[i * pixels.channels];
    }
    sums.first(k) = sum;
    sums.second(k) = products;
    if (T* dbeta = out<T>(kBackOut.dbeta)) dbeta[k] = static_cast<T>(sum);
    if (T* dgamma = out<T>(kBackOut.dgamma))
      dgamma[k] = static_cast<T>(-sum * in<T>(kBackIn.mean)[k] * in<T>(kBackIn.rb)[k]);
  }

  void Apply(const Pixels& pixels, int64_t k, const ChannelSums& sums) const {
    const double mean = in<T>(kBackIn.mean)[k], rb = in<T>(kBackIn.rb)[k];
    const double rm = in<T>(kBackIn.rm)[k], gamma = ValueOr(in<T>(kBackIn.gamma), k, 1);
    const double drb = sums.second(k) / rm - gamma * mean * sums.first(k);
    const double shift = -gamma * rb * sums.first(k) / sums.count();
    const double slope = -drb * rb * rb * rb / sums.count();
    const T *dy = in<T>(kBackIn.dy), *z = in<T>(kBackIn.z);
    T *dc = out<T>(kBackOut.dc), *dz = out<T>(kBackOut.dz);
    for (int64_t i = 0; i < pixels.all; ++i) {
      const int64_t at = i * pixels.channels + k;
      const double dz_at = i < pixels.valid ? shift + slope * (z[at] - mean) : 0;
      if (dc != nullptr) dc[at] = static_cast<T>(dy[at] * (rb / rm));
      if (dz != nullptr) dz[at] = static_cast<T>(dz_at);
    }
  }

  std::vector<double> sums_memory_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kFoldWeights, .make = MakeTyped<FoldWeights>},
    {.kind = op::kFoldWeightsBackward, .make = MakeTyped<FoldWeightsBackward>},
    {.kind = op::kFoldedBatchNorm, .make = MakeTyped<FoldedBatchNorm>},
    {.kind = op::kFoldedBatchNormBackward, .make = MakeTyped<FoldedBatchNormBackward>},
};

}  // namespace

KernelRows FoldedBatchNormKernels() { return kRows; }

}  // namespace carole::reference
