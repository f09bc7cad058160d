// A batch norm that is folded into the layer before it, and its gradient. Weights are seen as one
// image (1,K,elements of a filter,1) in NHWC, which is Layout::Filter().
#include "src/backend/ops/folded_batch_norm.h"

#include <cmath>

#include "src/backend/onednn/kernels/channel_kernel.h"

namespace carole::onednn {
namespace {

constexpr auto kFoldIn = kPosition<FoldWeightsInputs>;
constexpr auto kFoldOut = kPosition<FoldWeightsOutputs>;
constexpr auto kFoldBackIn = kPosition<FoldWeightsBackwardInputs>;
constexpr auto kFoldBackOut = kPosition<FoldWeightsBackwardOutputs>;
constexpr auto kIn = kPosition<FoldedBatchNormInputs>;
constexpr auto kOut = kPosition<FoldedBatchNormOutputs>;
constexpr auto kBackIn = kPosition<FoldedBatchNormBackwardInputs>;
constexpr auto kBackOut = kPosition<FoldedBatchNormBackwardOutputs>;

class FoldWeightsKernel : public ChannelKernel {
 public:
  FoldWeightsKernel(const OpSpec& spec, const Shape& w, int threads)
      : ChannelKernel(spec, w, Layout::Filter(), GridOf(w), threads) {}

 private:
  static Grid GridOf(const Shape& w) {
    return {Shape{1, w[0], w.size() / w[0], 1}, Layout::Nhwc()};
  }
};

class FoldWeights : public FoldWeightsKernel {
 public:
  FoldWeights(const OpSpec& spec, int threads)
      : FoldWeightsKernel(spec, spec.inputs[kFoldIn.w].shape, threads),
        epsilon_(spec.attributes.as<FoldedBatchNormAttributes>().epsilon) {}

  void Run(const RunContext&) override {
    float *scale = Channels(0), *zero = Channels(1), *rm = out(kFoldOut.rm);
    ClearChannels(2);
    for (int64_t k = 0; k < grid_.channels; ++k) {
      rm[k] = static_cast<float>(1 / std::sqrt(in(kFoldIn.moving_variance)[k] + epsilon_));
      scale[k] = static_cast<float>(ValueOr(kFoldIn.gamma, k, 1) * rm[k]);
    }
    ForUnits(1, [&](const Unit& u) { Scale(u, in(kFoldIn.w), out(kFoldOut.folded), scale, zero); });
  }

 private:
  const double epsilon_;
};

class FoldWeightsBackward : public FoldWeightsKernel {
 public:
  FoldWeightsBackward(const OpSpec& spec, int threads)
      : FoldWeightsKernel(spec, spec.inputs[kFoldBackIn.w].shape, threads) {}

  void Run(const RunContext&) override {
    float *scale = Channels(0), *zero = Channels(1), *dgamma = out(kFoldBackOut.dgamma);
    const float *dfolded = in(kFoldBackIn.dfolded), *rm = in(kFoldBackIn.rm);
    ClearChannels(2);
    for (int64_t k = 0; k < grid_.channels; ++k)
      scale[k] = static_cast<float>(ValueOr(kFoldBackIn.gamma, k, 1) * rm[k]);
    ForUnits(1, [&](const Unit& u) {
      if (dgamma != nullptr) {
        Vectors<float>().backward_sums(dfolded + u.offset, grid_.lanes, nullptr,
                                       in(kFoldBackIn.w) + u.offset, {}, zero + u.channel, u.plane,
                                       Partial(0, u.row) + u.channel, Partial(1, u.row) + u.channel,
                                       nullptr);
      }
      if (out(kFoldBackOut.dw) != nullptr) Scale(u, dfolded, out(kFoldBackOut.dw), scale, zero);
    });
    if (dgamma == nullptr) return;
    const ChannelSums sums = AddPartials(1);
    for (int64_t k = 0; k < grid_.channels; ++k)
      dgamma[k] = static_cast<float>(sums.second(k) * rm[k]);
  }
};

class FoldedBatchNorm : public ChannelKernel {
 public:
  FoldedBatchNorm(const OpSpec& spec, int threads)
      : ChannelKernel(spec, kIn.c, threads), a_(spec.attributes.as<FoldedBatchNormAttributes>()) {}

  int InPlaceInput(int output) const override { return output == kOut.y ? kIn.c : -1; }

  void Run(const RunContext& context) override {
    float *scale = Channels(0), *shift = Channels(1);
    ClearChannels(2);
    const ChannelSums moments = a_.training ? Moments(context, in(kIn.z)) : Sums();
    ForChannels([&](int64_t k) {
      const double rm = in(kIn.rm)[k];
      double mean = in(kIn.moving_mean)[k], rb = rm;
      if (a_.training) {
        mean = out(kOut.mean)[k] = static_cast<float>(moments.first(k));
        const double variance = moments.second(k) / moments.count();
        rb = out(kOut.rb)[k] = static_cast<float>(1 / std::sqrt(variance + a_.epsilon));
        MoveStatistics(a_.decay, moments, k, in(kIn.moving_mean)[k], in(kIn.moving_variance)[k]);
      }
      scale[k] = static_cast<float>(rb / rm);
      shift[k] = static_cast<float>(ValueOr(kIn.beta, k, 0) - ValueOr(kIn.gamma, k, 1) * mean * rb);
    });
    ForUnits(grid_.images, [&](const Unit& u) { Scale(u, in(kIn.c), out(kOut.y), scale, shift); });
  }

 private:
  const FoldedBatchNormAttributes a_;
};

class FoldedBatchNormBackward : public ChannelKernel {
 public:
  FoldedBatchNormBackward(const OpSpec& spec, int threads)
      : ChannelKernel(spec, kBackIn.c, threads) {}

  // All sums are made before the first output is written.
  int InPlaceInput(int output) const override {
    return output == kBackOut.dc ? kBackIn.dy : output == kBackOut.dz ? kBackIn.z : -1;
  }

  void Run(const RunContext& context) override {
    const int64_t valid = ValidRows(context, grid_.images);
    ClearChannels(5);
    const ChannelSums sums = Sum(valid);
    if (context.sum_over_ranks) context.sum_over_ranks(sums.all());
    float *scale = Channels(1), *zero = Channels(2), *slope = Channels(3), *shift = Channels(4);
    ForChannels([&](int64_t k) {
      const double n = sums.count(), mean = in(kBackIn.mean)[k], rb = in(kBackIn.rb)[k],
                   rm = in(kBackIn.rm)[k];
      const double drb = sums.second(k) / rm, slope_k = -drb * rb * rb * rb / n;
      scale[k] = static_cast<float>(rb / rm);
      slope[k] = static_cast<float>(slope_k);
      shift[k] = static_cast<float>(-ValueOr(kBackIn.gamma, k, 1) * rb * sums.first(k) / n -
                                    slope_k * mean);
    });
    float *dc = out(kBackOut.dc), *dz = out(kBackOut.dz);
    ForUnits(grid_.images, [&](const Unit& u) {
      if (dc != nullptr) Scale(u, in(kBackIn.dy), dc, scale, zero);
      if (dz == nullptr) return;
      if (u.image < valid) {
        Scale(u, in(kBackIn.z), dz, slope, shift);
      } else {
        std::fill_n(dz + u.offset, u.plane.pixels * u.plane.stride, 0.f);
      }
    });
  }

 private:
  // Returns the sums of dy and of dy * (c - center) over the valid rows of this rank, and writes
  // the gradients of gamma and beta. With center = gamma * rm * mean, which is about the mean of c,
  // the second sum is drb * rm without cancellation.
  ChannelSums Sum(int64_t valid) const {
    float* center = Channels(0);
    for (int64_t k = 0; k < grid_.channels; ++k) {
      center[k] = static_cast<float>(ValueOr(kBackIn.gamma, k, 1) * in(kBackIn.rm)[k] *
                                     in(kBackIn.mean)[k]);
    }
    ForUnits(valid, [&](const Unit& u) {
      Vectors<float>().backward_sums(in(kBackIn.dy) + u.offset, grid_.lanes, nullptr,
                                     in(kBackIn.c) + u.offset, {}, center + u.channel, u.plane,
                                     Partial(0, u.row) + u.channel, Partial(1, u.row) + u.channel,
                                     nullptr);
    });
    const ChannelSums sums = AddPartials(valid);
    for (int64_t k = 0; k < grid_.channels; ++k) {
      const double sum = sums.first(k);
      if (out(kBackOut.dbeta) != nullptr) out(kBackOut.dbeta)[k] = static_cast<float>(sum);
      if (out(kBackOut.dgamma) != nullptr) {
        out(kBackOut.dgamma)[k] =
            static_cast<float>(-sum * in(kBackIn.mean)[k] * in(kBackIn.rb)[k]);
      }
    }
    return sums;
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kFoldWeights, .make = Make<FoldWeights>, .supports = IsFp32},
    {.kind = op::kFoldWeightsBackward, .make = Make<FoldWeightsBackward>, .supports = IsFp32},
    {.kind = op::kFoldedBatchNorm, .make = Make<FoldedBatchNorm>, .supports = IsFp32},
    {.kind = op::kFoldedBatchNormBackward,
     .make = Make<FoldedBatchNormBackward>,
     .supports = IsFp32},
};

}  // namespace

KernelRows FoldedBatchNormKernels() { return kRows; }

}  // namespace carole::onednn
