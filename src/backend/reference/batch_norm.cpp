// Batch normalization over the pixels of all images. x is a matrix (pixels, C) in memory.
// Statistics and sums are accumulated in double, for one block of channels at a time.
#include "src/backend/ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "src/backend/batch_moments.h"
#include "src/backend/batch_rows.h"
#include "src/backend/ops/relu.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

constexpr auto kForwardIn = kPosition<BatchNormInputs>;
constexpr auto kForwardOut = kPosition<BatchNormOutputs>;
constexpr auto kBackIn = kPosition<BatchNormBackwardInputs>;
constexpr auto kBackOut = kPosition<BatchNormBackwardOutputs>;

// The size of x (N,C,H,W) or (N,C) as a matrix (pixels, C), and how many pixels are in valid rows.
struct Pixels {
  int64_t all, valid, channels;

  Pixels(const Shape& x, const RunContext& context) : channels(x[1]) {
    const int64_t pixels_per_image = x.rank() == 4 ? x[2] * x[3] : 1;
    all = x[0] * pixels_per_image;
    valid = ValidRows(context, x[0]) * pixels_per_image;
  }
};

// Computes (x - mean) * scale + beta instead of x * scale + offset, which would lose digits if
// |mean| is large. Backward computes the same bits again to find the ReLU's mask.
template <typename T>
T Normalize(T x, double mean, double scale, double beta) {
  return static_cast<T>((x - mean) * scale + beta);
}

// Set and read the bit of one element in relu_bitmask. The first bit of a byte also clears the
// byte, so PutBit() must be called in ascending order.
constexpr int64_t kBits = BatchNormAttributes::kReluBitmaskBits;
void PutBit(uint8_t* relu_bitmask, int64_t element, bool bit) {
  uint8_t& byte = relu_bitmask[element / kBits];
  if (element % kBits == 0) byte = 0;
  byte = static_cast<uint8_t>(byte | bit << element % kBits);
}
bool GetBit(const uint8_t* relu_bitmask, int64_t element) {
  return (relu_bitmask[element / kBits] >> element % kBits & 1) != 0;
}

template <typename T>
T ValueOr(const T* values, int64_t i, double fallback) {
  return values != nullptr ? values[i] : static_cast<T>(fallback);
}

template <typename T>
class BatchNorm : public ReferenceKernel {
 public:
  BatchNorm(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        a_(spec.attributes.as<BatchNormAttributes>()),
        sums_memory_(ChannelSums::Size(spec.inputs[kForwardIn.x].shape[1])) {}

  void Run(const RunContext& context) override {
    const Pixels pixels(in_shape(kForwardIn.x), context);
    const ChannelSums moments(sums_memory_.data(), pixels.channels);
    if (a_.training) {
      ForRanges(threads_, pixels.channels, kChannelGrain,
                [&](int64_t begin, int64_t end) { Statistics(pixels, begin, end, moments); });
      moments.count() = static_cast<double>(pixels.valid);
      if (context.sum_over_ranks) CombineMomentsOverRanks(context, moments);
    }
    ForRanges(threads_, pixels.channels, kChannelGrain, [&](int64_t begin, int64_t end) {
      double mean[kChannelGrain], variance[kChannelGrain];
      for (int64_t c = begin; c < end; ++c) {
        mean[c - begin] = a_.training ? moments.first(c) : double{in<T>(kForwardIn.moving_mean)[c]};
        variance[c - begin] = a_.training ? moments.second(c) / moments.count()
                                          : double{in<T>(kForwardIn.moving_variance)[c]};
      }
      Apply(pixels, begin, end, mean, variance);
      if (a_.training) UpdateMoving(begin, end, moments);
    });
  }

 private:
  void Statistics(const Pixels& pixels, int64_t begin, int64_t end,
                  const ChannelSums& moments) const {
    const T* x = in<T>(kForwardIn.x);
    double mean[kChannelGrain] = {}, m2[kChannelGrain] = {};
    for (int64_t i = 0; i < pixels.valid; ++i) {
      for (int64_t c = begin; c < end; ++c) mean[c - begin] += x[i * pixels.channels + c];
    }
    const auto n = static_cast<double>(std::max<int64_t>(pixels.valid, 1));
    for (int64_t c = 0; c < end - begin; ++c) mean[c] /= n;
    for (int64_t i = 0; i < pixels.valid; ++i) {
      for (int64_t c = begin; c < end; ++c) {
        const double d = x[i * pixels.channels + c] - mean[c - begin];
        m2[c - begin] += d * d;
      }
    }
    for (int64_t c = begin; c < end; ++c) {
      moments.first(c) = mean[c - begin];
      moments.second(c) = m2[c - begin];
    }
  }

  void UpdateMoving(int64_t begin, int64_t end, const ChannelSums& moments) const {
    T* moving_mean = in<T>(kForwardIn.moving_mean);
    T* moving_variance = in<T>(kForwardIn.moving_variance);
    const double n = moments.count(), unbiased = n > 1 ? n / (n - 1) : 1.0;
    const auto move = [&](T& moving, double batch) {
      moving = static_cast<T>(moving + (1 - a_.decay) * (batch - moving));
    };
    for (int64_t c = begin; c < end; ++c) {
      move(moving_mean[c], moments.first(c));
      move(moving_variance[c], moments.second(c) / n * unbiased);
    }
  }

  // Rounds mean and rstd to T before it uses them, because backward gets them rounded.
  void Apply(const Pixels& pixels, int64_t begin, int64_t end, double* mean,
             const double* variance) const {
    double scale[kChannelGrain], beta[kChannelGrain];
    T* mean_out = out<T>(kForwardOut.mean);
    T* rstd_out = out<T>(kForwardOut.rstd);
    for (int64_t c = begin; c < end; ++c) {
      const int64_t i = c - begin;
      mean[i] = static_cast<T>(mean[i]);
      const T rstd = static_cast<T>(1 / std::sqrt(variance[i] + a_.epsilon));
      scale[i] = double{ValueOr(in<T>(kForwardIn.gamma), c, 1)} * rstd;
      beta[i] = ValueOr(in<T>(kForwardIn.beta), c, 0);
      if (mean_out != nullptr) mean_out[c] = static_cast<T>(mean[i]);
      if (rstd_out != nullptr) rstd_out[c] = rstd;
    }
    const T* x = in<T>(kForwardIn.x);
    const T* residual = in<T>(kForwardIn.residual);
    T* y = out<T>(kForwardOut.y);
    uint8_t* relu_bitmask = out<uint8_t>(kForwardOut.relu_bitmask);
    const T top = static_cast<T>(ReluUpperBound(a_.ceiling));
    for (int64_t i = 0; i < pixels.all; ++i) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t at = i * pixels.channels + c;
        T value = Normalize(x[at], mean[c - begin], scale[c - begin], beta[c - begin]);
        if (residual != nullptr) value += residual[at];
        y[at] = a_.relu ? std::min(std::max(value, T{0}), top) : value;  // NaN stays NaN
        if (relu_bitmask != nullptr) PutBit(relu_bitmask, at, value > 0);
      }
    }
  }

  const BatchNormAttributes a_;
  mutable std::vector<double> sums_memory_;
};

template <typename T>
class BatchNormBackward : public ReferenceKernel {
 public:
  BatchNormBackward(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        a_(spec.attributes.as<BatchNormAttributes>()),
        sums_memory_(ChannelSums::Size(spec.inputs[kBackIn.x].shape[1])) {}

  void Run(const RunContext& context) override {
    const Pixels pixels(in_shape(kBackIn.x), context);
    const ChannelSums sums(sums_memory_.data(), pixels.channels);
    ForRanges(threads_, pixels.channels, kChannelGrain, [&](int64_t begin, int64_t end) {
      SumChannels(pixels, MakeBlock(begin, end), sums);
    });
    sums.count() = static_cast<double>(pixels.valid);
    if (context.sum_over_ranks) context.sum_over_ranks(sums.all());
    ForRanges(threads_, pixels.channels, kChannelGrain,
              [&](int64_t begin, int64_t end) { Apply(pixels, MakeBlock(begin, end), sums); });
  }

 private:
  // The parameters and statistics of one block of channels.
  struct Block {
    int64_t begin, end;
    double mean[kChannelGrain], rstd[kChannelGrain], gamma[kChannelGrain], beta[kChannelGrain];
  };

  Block MakeBlock(int64_t begin, int64_t end) const {
    Block block{.begin = begin, .end = end};
    for (int64_t c = begin; c < end; ++c) {
      block.mean[c - begin] = in<T>(kBackIn.mean)[c];
      block.rstd[c - begin] = in<T>(kBackIn.rstd)[c];
      block.gamma[c - begin] = ValueOr(in<T>(kBackIn.gamma), c, 1);
      block.beta[c - begin] = ValueOr(in<T>(kBackIn.beta), c, 0);
    }
    return block;
  }

  // Masks dy and computes dbeta and dgamma.
  void SumChannels(const Pixels& pixels, const Block& block, const ChannelSums& sums) const {
    Mask(pixels, block);
    Sum(pixels, block, sums);
    T* dgamma = out<T>(kBackOut.dgamma);
    T* dbeta = out<T>(kBackOut.dbeta);
    for (int64_t c = block.begin; c < block.end; ++c) {
      if (dgamma != nullptr) dgamma[c] = static_cast<T>(sums.second(c));
      if (dbeta != nullptr) dbeta[c] = static_cast<T>(sums.first(c));
    }
  }

  // Calls f(index of the element, channel within the block) for the first `count` pixels.
  template <typename F>
  static void ForElements(const Pixels& pixels, int64_t count, const Block& block, const F& f) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i * pixels.channels + block.begin;
      for (int64_t c = 0; c < block.end - block.begin; ++c) f(at + c, c);
    }
  }

  // Writes the masked gradient g (BatchNormAttributes) to dx, and to dresidual if it is
  // present.
  void Mask(const Pixels& pixels, const Block& block) const {
    const T* dy = in<T>(kBackIn.dy);
    const T* x = in<T>(kBackIn.x);
    const T* y = in<T>(kBackIn.y);
    const uint8_t* relu_bitmask = in<uint8_t>(kBackIn.relu_bitmask);
    const T* dy2 = in<T>(kBackIn.dy2);
    const int64_t c = pixels.channels, dy_channels = in_shape(kBackIn.dy)[1];
    const int64_t dy_begin = a_.dy_begin;
    const auto unmasked = [=](int64_t i) {
      const T first = dy[i / c * dy_channels + dy_begin + i % c];
      return dy2 == nullptr ? first : first + dy2[i];
    };
    const T top = static_cast<T>(ReluUpperBound(a_.ceiling));
    const auto passes = [=](T result) { return result > T{0} && result < top; };
    T* g = out<T>(kBackOut.dx);
    if (!a_.relu) {
      ForElements(pixels, pixels.all, block, [&](int64_t i, int64_t) { g[i] = unmasked(i); });
    } else if (relu_bitmask != nullptr) {
      ForElements(pixels, pixels.all, block,
                  [&](int64_t i, int64_t) { g[i] = GetBit(relu_bitmask, i) ? unmasked(i) : T{0}; });
    } else if (y != nullptr) {
      ForElements(pixels, pixels.all, block,
                  [&](int64_t i, int64_t) { g[i] = passes(y[i]) ? unmasked(i) : T{0}; });
    } else {
      double scale[kChannelGrain];
      for (int64_t c = 0; c < block.end - block.begin; ++c)
        scale[c] = block.gamma[c] * block.rstd[c];
      ForElements(pixels, pixels.all, block, [&](int64_t i, int64_t c) {
        const T result = Normalize(x[i], block.mean[c], scale[c], block.beta[c]);
        g[i] = passes(result) ? unmasked(i) : T{0};
      });
    }
    if (T* dresidual = out<T>(kBackOut.dresidual)) {
      ForElements(pixels, pixels.all, block, [&](int64_t i, int64_t) { dresidual[i] = g[i]; });
    }
  }

  void Sum(const Pixels& pixels, const Block& block, const ChannelSums& sums) const {
    const T* x = in<T>(kBackIn.x);
    const T* g = out<T>(kBackOut.dx);
    double dgamma[kChannelGrain] = {}, dbeta[kChannelGrain] = {};
    ForElements(pixels, pixels.valid, block, [&](int64_t i, int64_t c) {
      dbeta[c] += g[i];
      dgamma[c] += g[i] * (x[i] - block.mean[c]);
    });
    for (int64_t c = 0; c < block.end - block.begin; ++c) {
      sums.first(block.begin + c) = dbeta[c];
      sums.second(block.begin + c) = dgamma[c] * block.rstd[c];
    }
  }

  // Computes dx. Invalid rows had no part in the statistics, so their dx is gamma * rstd * g. It is
  // 0 if dy is 0, and adds nothing to the gradients of earlier layers.
  void Apply(const Pixels& pixels, const Block& block, const ChannelSums& sums) const {
    const T* x = in<T>(kBackIn.x);
    const T* addend = in<T>(kBackIn.addend);
    T* dx = out<T>(kBackOut.dx);
    const double n = sums.count();
    double scale[kChannelGrain], shift[kChannelGrain], slope[kChannelGrain];
    for (int64_t c = 0; c < block.end - block.begin; ++c) {
      scale[c] = block.gamma[c] * block.rstd[c];
      shift[c] = sums.first(block.begin + c) / n;
      slope[c] = block.rstd[c] * sums.second(block.begin + c) / n;
    }
    ForElements(pixels, pixels.valid, block, [&](int64_t i, int64_t c) {
      const double centered = dx[i] - shift[c] - (x[i] - block.mean[c]) * slope[c];
      dx[i] = static_cast<T>(scale[c] * centered);
    });
    for (int64_t i = pixels.valid; i < pixels.all; ++i) {
      T* row = dx + i * pixels.channels + block.begin;
      for (int64_t c = 0; c < block.end - block.begin; ++c)
        row[c] = static_cast<T>(scale[c] * row[c]);
    }
    if (addend != nullptr) {
      ForElements(pixels, pixels.all, block, [&](int64_t i, int64_t) { dx[i] += addend[i]; });
    }
  }

  const BatchNormAttributes a_;
  mutable std::vector<double> sums_memory_;
};

bool IsTraining(const OpSpec& spec, int threads) {
  return SupportsTypes(spec, threads) && spec.attributes.as<BatchNormAttributes>().training;
}

constexpr KernelRow kRows[] = {
    {.kind = op::kBatchNorm, .make = MakeTyped<BatchNorm>},
    {.kind = op::kBatchNormBackward, .make = MakeTyped<BatchNormBackward>, .supports = IsTraining},
};

}  // namespace

KernelRows BatchNormKernels() { return kRows; }

}  // namespace carole::reference
