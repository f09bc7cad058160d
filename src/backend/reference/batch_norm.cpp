// Batch normalization over the pixels of all images: x is a matrix (pixels, C) in memory.
// Statistics and sums are made in double, a block of channels at a time.
#include <algorithm>
#include <cmath>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

using Forward = BatchNormPlaces;
using Backward = BatchNormBackwardPlaces;

// x (N,C,H,W) or (N,C) as a matrix, and how many of its rows count.
struct Pixels {
  int64_t all, counted, channels;

  Pixels(const Shape& x, int64_t valid_rows) : channels(x[1]) {
    const int64_t each = x.rank() == 4 ? x[2] * x[3] : 1;
    CAROLE_CHECK(valid_rows >= 0 && valid_rows <= x[0], "{} valid rows in a batch of {}",
                 valid_rows, x[0]);
    all = x[0] * each;
    counted = (valid_rows == 0 ? x[0] : valid_rows) * each;
  }
};

// (x - mean) * scale + beta, and not x * scale + offset, keeps its digits when |mean| is large.
// Backward repeats it bit by bit to find the ReLU's mask.
template <typename T>
T Normalize(T x, double mean, double scale, double beta) {
  return static_cast<T>((x - mean) * scale + beta);
}

template <typename T>
T ValueOr(const T* values, int64_t i, double otherwise) {
  return values != nullptr ? values[i] : static_cast<T>(otherwise);
}

template <typename T>
class BatchNorm : public ReferenceKernel {
 public:
  BatchNorm(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads), a_(spec.attributes_as<BatchNormAttributes>()) {}

  void Run(const RunContext& context) override {
    const Pixels pixels(in_shape(Forward::kX), context.valid_rows);
    ParallelRanges(threads_, pixels.channels, kChannelGrain, [&](int64_t begin, int64_t end) {
      double mean[kChannelGrain] = {}, variance[kChannelGrain] = {};
      if (a_.training) {
        Statistics(pixels, begin, end, mean, variance);
      } else {
        std::copy(in<T>(Forward::kMovingMean) + begin, in<T>(Forward::kMovingMean) + end, mean);
        std::copy(in<T>(Forward::kMovingVariance) + begin, in<T>(Forward::kMovingVariance) + end,
                  variance);
      }
      Apply(pixels, begin, end, mean, variance);
      if (a_.training) UpdateMoving(pixels.counted, begin, end, mean, variance);
    });
  }

 private:
  void Statistics(const Pixels& pixels, int64_t begin, int64_t end, double* mean,
                  double* variance) const {
    const T* x = in<T>(Forward::kX);
    const auto n = static_cast<double>(pixels.counted);
    for (int64_t i = 0; i < pixels.counted; ++i) {
      for (int64_t c = begin; c < end; ++c) mean[c - begin] += x[i * pixels.channels + c];
    }
    for (int64_t c = 0; c < end - begin; ++c) mean[c] /= n;
    for (int64_t i = 0; i < pixels.counted; ++i) {
      for (int64_t c = begin; c < end; ++c) {
        const double d = x[i * pixels.channels + c] - mean[c - begin];
        variance[c - begin] += d * d;
      }
    }
    for (int64_t c = 0; c < end - begin; ++c) variance[c] /= n;
  }

  void UpdateMoving(int64_t n, int64_t begin, int64_t end, const double* mean,
                    const double* variance) const {
    T* moving_mean = in<T>(Forward::kMovingMean);
    T* moving_variance = in<T>(Forward::kMovingVariance);
    const double unbiased = n > 1 ? static_cast<double>(n) / static_cast<double>(n - 1) : 1.0;
    const auto move = [&](T& moving, double batch) {
      moving = static_cast<T>(moving + (1 - a_.decay) * (batch - moving));
    };
    for (int64_t c = begin; c < end; ++c) {
      move(moving_mean[c], mean[c - begin]);
      move(moving_variance[c], variance[c - begin] * unbiased);
    }
  }

  // mean and rstd are rounded to T before they are used, as backward will see them.
  void Apply(const Pixels& pixels, int64_t begin, int64_t end, double* mean,
             const double* variance) const {
    double scale[kChannelGrain], beta[kChannelGrain];
    T* mean_out = out<T>(Forward::kMean);
    T* rstd_out = out<T>(Forward::kRstd);
    for (int64_t c = begin; c < end; ++c) {
      const int64_t i = c - begin;
      mean[i] = static_cast<T>(mean[i]);
      const T rstd = static_cast<T>(1 / std::sqrt(variance[i] + a_.epsilon));
      scale[i] = double{ValueOr(in<T>(Forward::kGamma), c, 1)} * rstd;
      beta[i] = ValueOr(in<T>(Forward::kBeta), c, 0);
      if (mean_out != nullptr) mean_out[c] = static_cast<T>(mean[i]);
      if (rstd_out != nullptr) rstd_out[c] = rstd;
    }
    const T* x = in<T>(Forward::kX);
    const T* residual = in<T>(Forward::kResidual);
    T* y = out<T>(Forward::kY);
    for (int64_t i = 0; i < pixels.all; ++i) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t at = i * pixels.channels + c;
        T value = Normalize(x[at], mean[c - begin], scale[c - begin], beta[c - begin]);
        if (residual != nullptr) value += residual[at];
        y[at] = a_.relu && value < T{0} ? T{0} : value;  // NaN stays NaN
      }
    }
  }

  const BatchNormAttributes a_;
};

template <typename T>
class BatchNormBackward : public ReferenceKernel {
 public:
  BatchNormBackward(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads), a_(spec.attributes_as<BatchNormAttributes>()) {}

  void Run(const RunContext& context) override {
    const Pixels pixels(in_shape(Backward::kX), context.valid_rows);
    ParallelRanges(threads_, pixels.channels, kChannelGrain,
                   [&](int64_t begin, int64_t end) { RunChannels(pixels, begin, end); });
  }

 private:
  // The numbers of one block of channels.
  struct Block {
    int64_t begin, end;
    double mean[kChannelGrain], rstd[kChannelGrain], gamma[kChannelGrain], beta[kChannelGrain];
    double dgamma[kChannelGrain] = {}, dbeta[kChannelGrain] = {};
  };

  void RunChannels(const Pixels& pixels, int64_t begin, int64_t end) const {
    Block block{.begin = begin, .end = end};
    for (int64_t c = begin; c < end; ++c) {
      block.mean[c - begin] = in<T>(Backward::kMean)[c];
      block.rstd[c - begin] = in<T>(Backward::kRstd)[c];
      block.gamma[c - begin] = ValueOr(in<T>(Backward::kGamma), c, 1);
      block.beta[c - begin] = ValueOr(in<T>(Backward::kBeta), c, 0);
    }
    Mask(pixels, block);
    Sum(pixels, block);
    T* dgamma = out<T>(Backward::kDgamma);
    T* dbeta = out<T>(Backward::kDbeta);
    for (int64_t c = begin; c < end; ++c) {
      if (dgamma != nullptr) dgamma[c] = static_cast<T>(block.dgamma[c - begin]);
      if (dbeta != nullptr) dbeta[c] = static_cast<T>(block.dbeta[c - begin]);
    }
    Apply(pixels, block);
  }

  // Calls f(place of the element, channel within the block) for `count` pixels.
  template <typename F>
  static void ForElements(const Pixels& pixels, int64_t count, const Block& block, const F& f) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i * pixels.channels + block.begin;
      for (int64_t c = 0; c < block.end - block.begin; ++c) f(at + c, c);
    }
  }

  // Leaves g, dy where the ReLU let y through, in dx, and in dresidual where that is asked for.
  void Mask(const Pixels& pixels, const Block& block) const {
    const T* dy = in<T>(Backward::kDy);
    const T* x = in<T>(Backward::kX);
    const T* y = in<T>(Backward::kY);
    T* g = out<T>(Backward::kDx);
    if (!a_.relu) {
      ForElements(pixels, pixels.all, block, [&](int64_t i, int64_t) { g[i] = dy[i]; });
    } else if (y != nullptr) {
      ForElements(pixels, pixels.all, block,
                  [&](int64_t i, int64_t) { g[i] = y[i] > T{0} ? dy[i] : T{0}; });
    } else {
      double scale[kChannelGrain];
      for (int64_t c = 0; c < block.end - block.begin; ++c)
        scale[c] = block.gamma[c] * block.rstd[c];
      ForElements(pixels, pixels.all, block, [&](int64_t i, int64_t c) {
        g[i] = Normalize(x[i], block.mean[c], scale[c], block.beta[c]) > T{0} ? dy[i] : T{0};
      });
    }
    if (T* dresidual = out<T>(Backward::kDresidual)) {
      ForElements(pixels, pixels.all, block, [&](int64_t i, int64_t) { dresidual[i] = g[i]; });
    }
  }

  void Sum(const Pixels& pixels, Block& block) const {
    const T* x = in<T>(Backward::kX);
    const T* g = out<T>(Backward::kDx);
    ForElements(pixels, pixels.counted, block, [&](int64_t i, int64_t c) {
      block.dbeta[c] += g[i];
      block.dgamma[c] += g[i] * (x[i] - block.mean[c]);
    });
    for (int64_t c = 0; c < block.end - block.begin; ++c) block.dgamma[c] *= block.rstd[c];
  }

  // Rows that do not count have no part in the statistics: dx = gamma * rstd * g. So they stay zero
  // where dy is zero, and add nothing to the gradients of the layers before.
  void Apply(const Pixels& pixels, const Block& block) const {
    const T* x = in<T>(Backward::kX);
    T* dx = out<T>(Backward::kDx);
    const auto n = static_cast<double>(pixels.counted);
    double scale[kChannelGrain], shift[kChannelGrain], slope[kChannelGrain];
    for (int64_t c = 0; c < block.end - block.begin; ++c) {
      scale[c] = block.gamma[c] * block.rstd[c];
      shift[c] = block.dbeta[c] / n;
      slope[c] = block.rstd[c] * block.dgamma[c] / n;
    }
    ForElements(pixels, pixels.counted, block, [&](int64_t i, int64_t c) {
      const double centred = dx[i] - shift[c] - (x[i] - block.mean[c]) * slope[c];
      dx[i] = static_cast<T>(scale[c] * centred);
    });
    for (int64_t i = pixels.counted; i < pixels.all; ++i) {
      T* row = dx + i * pixels.channels + block.begin;
      for (int64_t c = 0; c < block.end - block.begin; ++c)
        row[c] = static_cast<T>(scale[c] * row[c]);
    }
  }

  const BatchNormAttributes a_;
};

}  // namespace

std::unique_ptr<Kernel> MakeBatchNorm(const OpSpec& spec, int threads) {
  return MakeTyped<BatchNorm>(spec, threads);
}
std::unique_ptr<Kernel> MakeBatchNormBackward(const OpSpec& spec, int threads) {
  return MakeTyped<BatchNormBackward>(spec, threads);
}

}  // namespace carole::reference
