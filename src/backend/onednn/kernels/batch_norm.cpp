// Batch normalization fused with ReLU and residual add, on blocked and NHWC layouts.
//
// It is bound by memory bandwidth: forward reads x twice (for the statistics, then for the result),
// backward reads dy and x twice. The gradient of the residual overwrites dy, and dx overwrites x,
// so that stores hit cache lines that the loads have just brought. Partial sums are made for each
// piece of a fixed grid and merged in a fixed order, so results do not depend on timing.

#include "src/backend/ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "src/backend/onednn/kernels/channel_kernel.h"
#include "src/backend/ops/relu.h"

namespace carole::onednn {
namespace {

constexpr auto kIn = kPosition<BatchNormInputs>;
constexpr auto kOut = kPosition<BatchNormOutputs>;
constexpr auto kBackIn = kPosition<BatchNormBackwardInputs>;
constexpr auto kBackOut = kPosition<BatchNormBackwardOutputs>;

class BatchNormKernel : public ChannelKernel {
 public:
  BatchNormKernel(const OpSpec& spec, int activation, int threads)
      : ChannelKernel(spec, activation, threads),
        attributes_(spec.attributes.as<BatchNormAttributes>()),
        top_(static_cast<float>(ReluUpperBound(attributes_.ceiling))) {}

 protected:
  BatchNormAttributes attributes_;
  float top_;  // upper bound of the ReLU
};

template <typename T>
class BatchNorm : public BatchNormKernel {
 public:
  BatchNorm(const OpSpec& spec, int threads) : BatchNormKernel(spec, kIn.x, threads) {}

  int InPlaceInput(int output) const override {
    return output == kOut.y && !attributes_.training ? kIn.x : -1;
  }

  void Run(const RunContext& context) override {
    float *scale = Channels(0), *shift = Channels(1);
    ClearChannels(2);
    const ChannelSums moments = attributes_.training ? Moments(context, in<T>(kIn.x)) : Sums();
    ForChannels([&](int64_t c) {
      const auto [mean, rstd] =
          attributes_.training ? SaveStatistics(c, moments) : MovingStatistics(c);
      const double gamma = ValueOr(kIn.gamma, c, 1);
      scale[c] = static_cast<float>(gamma * rstd);
      shift[c] = static_cast<float>(ValueOr(kIn.beta, c, 0) - mean * gamma * rstd);
    });
    const T* residual = in<T>(kIn.residual);
    ForUnits(grid_.images, [&](const Unit& u) {
      Vectors<T>().normalize(in<T>(kIn.x) + u.offset, residual ? residual + u.offset : nullptr,
                             out<T>(kOut.y) + u.offset, u.plane, scale + u.channel,
                             shift + u.channel, attributes_.relu, top_);
    });
  }

 private:
  // Writes mean and rstd and updates the moving statistics. Returns mean and rstd.
  std::pair<double, double> SaveStatistics(int64_t c, const ChannelSums& moments) const {
    const double variance = moments.second(c) / moments.count();
    const double rstd = 1.0 / std::sqrt(variance + attributes_.epsilon);
    // Use the rounded values from here on. Backward recomputes the ReLU's mask from them and has to
    // get the same bits.
    const float saved_mean = out(kOut.mean)[c] = static_cast<float>(moments.first(c));
    const float saved_rstd = out(kOut.rstd)[c] = static_cast<float>(rstd);
    MoveStatistics(attributes_.decay, moments, c, in(kIn.moving_mean)[c],
                   in(kIn.moving_variance)[c]);
    return {saved_mean, saved_rstd};
  }

  std::pair<double, double> MovingStatistics(int64_t c) const {
    return {in(kIn.moving_mean)[c],
            1.0 / std::sqrt(in(kIn.moving_variance)[c] + attributes_.epsilon)};
  }
};

template <typename T>
class BatchNormBackward : public BatchNormKernel {
 public:
  BatchNormBackward(const OpSpec& spec, int threads)
      : BatchNormKernel(spec, kBackIn.x, threads),
        dy_(spec.inputs[kBackIn.dy].shape, input_layouts_[kBackIn.dy]) {}

  int InPlaceInput(int output) const override {
    if (output == kBackOut.dx) return kBackIn.x;
    return output == kBackOut.dresidual && dy_.channels == grid_.channels ? kBackIn.dy : -1;
  }

  void Run(const RunContext& context) override {
    const int64_t valid = ValidRows(context, grid_.images);
    float *mean = Channels(0), *a = Channels(1), *k1 = Channels(2), *k2 = Channels(3),
          *scale = Channels(4), *shift = Channels(5), *zero = Channels(6);
    ClearChannels(7);
    const bool recomputes_y = attributes_.relu && in<T>(kBackIn.y) == nullptr;
    for (int64_t c = 0; c < grid_.channels; ++c) {
      const double gamma = ValueOr(kBackIn.gamma, c, 1), rstd = in(kBackIn.rstd)[c];
      mean[c] = in(kBackIn.mean)[c];
      a[c] = static_cast<float>(gamma * rstd);
      scale[c] = a[c];
      shift[c] = static_cast<float>(ValueOr(kBackIn.beta, c, 0) - mean[c] * gamma * rstd);
    }
    auto mask_at = [&](const Unit& u) {
      ReluMask<T> mask{.top = top_};
      if (recomputes_y) {
        mask.scale = scale + u.channel;
        mask.shift = shift + u.channel;
      } else if (attributes_.relu) {
        mask.y = in<T>(kBackIn.y) + u.offset;
      }
      return mask;
    };
    T* masked_dy = out<T>(kBackOut.dresidual);
    const T *dy2 = in<T>(kBackIn.dy2), *addend = in<T>(kBackIn.addend);
    ForUnits(grid_.images, [&](const Unit& u) {
      Vectors<T>().backward_sums(DyAt(u), dy_.lanes, dy2 ? dy2 + u.offset : nullptr,
                                 in<T>(kBackIn.x) + u.offset, mask_at(u), mean + u.channel, u.plane,
                                 Partial(0, u.row) + u.channel, Partial(1, u.row) + u.channel,
                                 masked_dy ? masked_dy + u.offset : nullptr);
    });
    const ChannelSums sums = AddPartials(valid);
    ForChannels([&](int64_t c) { WriteGradients(c, sums); });
    if (context.sum_over_ranks) context.sum_over_ranks(sums.all());
    for (int64_t c = 0; c < grid_.channels; ++c) {
      const double n = sums.count(), rstd = in(kBackIn.rstd)[c];
      k1[c] = static_cast<float>(sums.first(c) / n);
      k2[c] = static_cast<float>(sums.second(c) * rstd * rstd / n);
    }
    ForUnits(grid_.images, [&](const Unit& u) {
      // Rows that had no part in the statistics get no part of the statistics' gradient.
      const bool is_valid = u.image < valid;
      // If the first pass has stored the masked gradient, this pass needs no mask.
      Vectors<T>().backward_data(
          masked_dy ? masked_dy + u.offset : DyAt(u), masked_dy ? grid_.lanes : dy_.lanes,
          in<T>(kBackIn.x) + u.offset, masked_dy ? ReluMask<T>{} : mask_at(u), mean + u.channel,
          a + u.channel, (is_valid ? k1 : zero) + u.channel, (is_valid ? k2 : zero) + u.channel,
          addend ? addend + u.offset : nullptr, u.plane, out<T>(kBackOut.dx) + u.offset);
    });
  }

 private:
  // The elements of dy for this unit. dy and x have the same kind of layout. Either a pixel holds
  // all channels in both, or both have blocks with the same number of lanes.
  const T* DyAt(const Unit& u) const {
    const int64_t channel = attributes_.dy_begin + u.channel;
    return in<T>(kBackIn.dy) + dy_.Offset(u.image, channel / dy_.lanes) + u.pixel * dy_.lanes +
           channel % dy_.lanes;
  }

  void WriteGradients(int64_t c, const ChannelSums& sums) const {
    if (out(kBackOut.dbeta)) out(kBackOut.dbeta)[c] = static_cast<float>(sums.first(c));
    if (out(kBackOut.dgamma))
      out(kBackOut.dgamma)[c] = static_cast<float>(sums.second(c) * in(kBackIn.rstd)[c]);
  }

  Planes dy_;
};

bool SupportsBatchNorm(const OpSpec& spec, const Cpu& cpu) {
  return SupportsTypes(spec, cpu) && !HasReluBitmask(spec);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kBatchNorm, .make = MakeTyped<BatchNorm>, .supports = SupportsBatchNorm},
    {.kind = op::kBatchNormBackward,
     .make = MakeTyped<BatchNormBackward>,
     .supports = SupportsBatchNorm},
};

}  // namespace

KernelRows BatchNormKernels() { return kRows; }

}  // namespace carole::onednn
