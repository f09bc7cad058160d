// Batch normalization fused with ReLU and residual add, on blocked and NHWC layouts.
//
// It is bound by memory bandwidth: forward reads x twice (for the statistics, then for the result),
// backward reads dy and x twice. The gradient of the residual overwrites dy, and dx overwrites x,
// so that stores hit cache lines that the loads have just brought. Partial sums are made for each
// piece of a fixed grid and merged in a fixed order, so results do not depend on timing.

#include "src/backend/ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "src/backend/batch_moments.h"
#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/onednn/vector/vector.h"
#include "src/backend/ops/relu.h"
#include "src/core/divide_up.h"
#include "src/tensor/buffer.h"

namespace carole::onednn {
namespace {

constexpr auto kIn = kPosition<BatchNormInputs>;
constexpr auto kOut = kPosition<BatchNormOutputs>;
constexpr auto kBackIn = kPosition<BatchNormBackwardInputs>;
constexpr auto kBackOut = kPosition<BatchNormBackwardOutputs>;

// Planes cut into pieces of pixels that fit into the cache. A piece of a plane is the unit of work.
struct Grid : Planes {
  Grid(const Shape& shape, const Layout& layout) : Planes(shape, layout) {
    piece = std::clamp<int64_t>(16384 / lanes, 32, 1024);
    pieces = DivideUp(pixels, piece);
  }

  int64_t units() const { return images * blocks * pieces; }
  int64_t rows() const { return images * pieces; }  // number of partial sums for each channel

  int64_t piece, pieces;
};

// One piece of one plane.
struct Unit {
  Unit(const Grid& g, int64_t unit) {
    const int64_t p = unit % g.pieces, block = unit / g.pieces % g.blocks;
    image = unit / g.pieces / g.blocks;
    row = image * g.pieces + p;
    channel = block * g.lanes;
    pixel = p * g.piece;
    offset = g.Offset(image, block) + pixel * g.lanes;
    plane = {std::min(g.piece, g.pixels - pixel), g.lanes, g.lanes};
  }
  int64_t image, row, channel, pixel, offset;
  Plane plane;
};

class BatchNormKernel : public Kernel {
 public:
  BatchNormKernel(const OpSpec& spec, int activation, int threads)
      : attributes_(spec.attributes.as<BatchNormAttributes>()),
        top_(static_cast<float>(ReluUpperBound(attributes_.ceiling))),
        grid_(spec.inputs[activation].shape, KnownLayout(spec.inputs[activation])),
        threads_(threads) {
    const Shape& shape = spec.inputs[activation].shape;
    const Layout layout = KnownLayout(spec.inputs[activation]);
    // Tensors of the activation's rank are activations: tensors (C) have rank 1, the activation has
    // rank 2 or 4. A gradient may have more channels than x.
    auto choose = [&](const TensorSpec& t) {
      if (!t.present || t.shape.rank() != shape.rank()) return Layout::RowMajor();
      return t.shape == shape ? layout : LayoutLike(t.shape, layout);
    };
    for (const TensorSpec& t : spec.inputs) input_layouts_.push_back(choose(t));
    for (const TensorSpec& t : spec.outputs) output_layouts_.push_back(choose(t));
    workspace_bytes_ = sizeof(float) * static_cast<size_t>(grid_.padded_channels() *
                                                           (2 * grid_.rows() + kChannelArrays)) +
                       sizeof(double) * ChannelSums::Size(grid_.channels);
  }

  void Bind(const KernelMemory& memory) override { memory_ = memory; }

 protected:
  static constexpr int kChannelArrays = 8;

  // The elements of input or output number `index`, or nullptr if it is absent. T is float for
  // parameters and statistics, and the storage type for activations.
  template <typename T = float>
  T* in(int index) const {
    return memory_.inputs[index].data ? memory_.inputs[index].as<T>() : nullptr;
  }
  template <typename T = float>
  T* out(int index) const {
    return memory_.outputs[index].data ? memory_.outputs[index].as<T>() : nullptr;
  }

  // The workspace holds, in this order: two partial sums (quantity 0 and 1) for each row and
  // channel; kChannelArrays arrays with one value for each channel; the doubles of Sums(). Channels
  // include padding.
  float* Partial(int quantity, int64_t row) const {
    return reinterpret_cast<float*>(memory_.workspace) +
           (quantity * grid_.rows() + row) * grid_.padded_channels();
  }
  float* Channels(int array) const { return Partial(2, 0) + array * grid_.padded_channels(); }
  // Aligned to 8 bytes, because the number of arrays before it is even.
  ChannelSums Sums() const {
    static_assert(kChannelArrays % 2 == 0);
    return {reinterpret_cast<double*>(Channels(kChannelArrays)), grid_.channels};
  }

  int64_t ValidImages(const RunContext& c) const {
    if (c.valid_rows == RunContext::kNoRows) return 0;
    return c.valid_rows > 0 ? std::min(c.valid_rows, grid_.images) : grid_.images;
  }

  template <typename F>
  void ForUnits(int64_t images, F f) const {
    const int64_t units = images * grid_.blocks * grid_.pieces;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t u = 0; u < units; ++u) f(Unit(grid_, u));
  }

  template <typename F>
  void ForChannels(F f) const {
#pragma omp parallel for num_threads(threads_) \
    schedule(static) if (grid_.rows() * grid_.channels > 8192)
    for (int64_t c = 0; c < grid_.channels; ++c) f(c);
  }

  BatchNormAttributes attributes_;
  float top_;  // upper bound of the ReLU
  Grid grid_;
  int threads_;
  KernelMemory memory_;
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
    // Padding channels of a blocked layout must stay zero: y = x * 0 + 0.
    std::fill_n(scale, 2 * grid_.padded_channels(), 0.f);
    const int64_t valid = ValidImages(context);
    if (attributes_.training) {
      ForUnits(valid, [&](const Unit& u) {
        Vectors<T>().moments(in<T>(kIn.x) + u.offset, u.plane, Partial(0, u.row) + u.channel,
                             Partial(1, u.row) + u.channel);
      });
    }
    const ChannelSums moments = Sums();
    if (attributes_.training) {
      ForChannels([&](int64_t c) { MergeMoments(c, valid, moments); });
      moments.count() = static_cast<double>(valid * grid_.pixels);
      if (context.sum_over_ranks) CombineMomentsOverRanks(context, moments);
    }
    ForChannels([&](int64_t c) {
      const auto [mean, rstd] =
          attributes_.training ? SaveStatistics(c, moments) : MovingStatistics(c);
      const double gamma = in(kIn.gamma) ? in(kIn.gamma)[c] : 1.0;
      scale[c] = static_cast<float>(gamma * rstd);
      shift[c] = static_cast<float>((in(kIn.beta) ? in(kIn.beta)[c] : 0.0) - mean * gamma * rstd);
    });
    const T* residual = in<T>(kIn.residual);
    ForUnits(grid_.images, [&](const Unit& u) {
      Vectors<T>().normalize(in<T>(kIn.x) + u.offset, residual ? residual + u.offset : nullptr,
                             out<T>(kOut.y) + u.offset, u.plane, scale + u.channel,
                             shift + u.channel, attributes_.relu, top_);
    });
  }

 private:
  // Merges the moments of the pieces (Chan, Golub & LeVeque 1979).
  void MergeMoments(int64_t c, int64_t valid, const ChannelSums& moments) const {
    double n = 0, mean = 0, m2 = 0;
    for (int64_t row = 0; row < valid * grid_.pieces; ++row) {
      const int64_t p = row % grid_.pieces;
      const double count =
          static_cast<double>(std::min(grid_.piece, grid_.pixels - p * grid_.piece));
      const double delta = Partial(0, row)[c] - mean;
      m2 += Partial(1, row)[c] + delta * delta * n * count / (n + count);
      mean += delta * count / (n + count);
      n += count;
    }
    moments.first(c) = mean;
    moments.second(c) = m2;
  }

  // Writes mean and rstd and updates the moving statistics. Returns mean and rstd.
  std::pair<double, double> SaveStatistics(int64_t c, const ChannelSums& moments) const {
    const double n = moments.count(), mean = moments.first(c), m2 = moments.second(c);
    const double variance = m2 / n, rstd = 1.0 / std::sqrt(variance + attributes_.epsilon);
    // Use the rounded values from here on. Backward recomputes the ReLU's mask from them and has to
    // get the same bits.
    const float saved_mean = out(kOut.mean)[c] = static_cast<float>(mean);
    const float saved_rstd = out(kOut.rstd)[c] = static_cast<float>(rstd);
    const double rate = 1.0 - attributes_.decay, unbiased = n > 1 ? m2 / (n - 1) : variance;
    float &moving_mean = in(kIn.moving_mean)[c], &moving_variance = in(kIn.moving_variance)[c];
    moving_mean = static_cast<float>(moving_mean + rate * (mean - moving_mean));
    moving_variance = static_cast<float>(moving_variance + rate * (unbiased - moving_variance));
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
    const int64_t valid = ValidImages(context);
    float *mean = Channels(0), *a = Channels(1), *k1 = Channels(2), *k2 = Channels(3),
          *scale = Channels(4), *shift = Channels(5), *zero = Channels(6);
    std::fill_n(mean, 7 * grid_.padded_channels(), 0.f);
    const bool recomputes_y = attributes_.relu && in<T>(kBackIn.y) == nullptr;
    for (int64_t c = 0; c < grid_.channels; ++c) {
      const double gamma = in(kBackIn.gamma) ? in(kBackIn.gamma)[c] : 1.0,
                   rstd = in(kBackIn.rstd)[c];
      mean[c] = in(kBackIn.mean)[c];
      a[c] = static_cast<float>(gamma * rstd);
      scale[c] = a[c];
      shift[c] = static_cast<float>((in(kBackIn.beta) ? in(kBackIn.beta)[c] : 0.0) -
                                    mean[c] * gamma * rstd);
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
    const ChannelSums sums = Sums();
    ForChannels([&](int64_t c) { SumChannel(c, valid, sums); });
    sums.count() = static_cast<double>(valid * grid_.pixels);
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

  void SumChannel(int64_t c, int64_t valid, const ChannelSums& sums) const {
    double sum_g = 0, sum_gx = 0;
    for (int64_t row = 0; row < valid * grid_.pieces; ++row) {
      sum_g += Partial(0, row)[c];
      sum_gx += Partial(1, row)[c];
    }
    sums.first(c) = sum_g;
    sums.second(c) = sum_gx;
    if (out(kBackOut.dbeta)) out(kBackOut.dbeta)[c] = static_cast<float>(sum_g);
    if (out(kBackOut.dgamma))
      out(kBackOut.dgamma)[c] = static_cast<float>(sum_gx * in(kBackIn.rstd)[c]);
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
