// The kernels of batch norm share this code. It sums over the pixels of each channel: first in each
// piece of a fixed grid, then over the pieces in a fixed order. Private to the oneDNN backend.
#pragma once

#include <algorithm>
#include <utility>

#include "src/backend/batch_moments.h"
#include "src/backend/batch_rows.h"
#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/onednn/vector/vector.h"
#include "src/core/divide_up.h"

namespace carole::onednn {

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

// Base class of kernels that compute sums for each channel.
class ChannelKernel : public Kernel {
 public:
  // Tensors with as many dimensions as `shape` get `layout`. All others hold one value for each
  // channel, and are plain. `grid` may describe the tensors of `layout` with another shape.
  ChannelKernel(const OpSpec& spec, const Shape& shape, const Layout& layout, const Grid& grid,
                int threads)
      : grid_(grid), threads_(threads) {
    // A gradient may have more channels than x.
    const auto choose = [&](const TensorSpec& t) {
      if (!t.present || t.shape.rank() != shape.rank()) return Layout::RowMajor();
      return t.shape == shape ? layout : LayoutLike(t.shape, layout);
    };
    for (const TensorSpec& t : spec.inputs) input_layouts_.push_back(choose(t));
    for (const TensorSpec& t : spec.outputs) output_layouts_.push_back(choose(t));
    workspace_bytes_ = sizeof(float) * static_cast<size_t>(grid_.padded_channels() *
                                                           (2 * grid_.rows() + kChannelArrays)) +
                       sizeof(double) * ChannelSums::Size(grid_.channels);
  }
  // For activations that have the shape and layout of this input.
  ChannelKernel(const OpSpec& spec, int activation, int threads)
      : ChannelKernel(spec, spec.inputs[activation].shape, KnownLayout(spec.inputs[activation]),
                      {spec.inputs[activation].shape, KnownLayout(spec.inputs[activation])},
                      threads) {}

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
  // The value of channel c of an input that may be absent.
  double ValueOr(int index, int64_t c, double otherwise) const {
    return in(index) != nullptr ? in(index)[c] : otherwise;
  }

  // The workspace holds, in this order: two partial sums (quantity 0 and 1) for each row and
  // channel; kChannelArrays arrays with one value for each channel; the doubles of Sums(). Channels
  // include padding.
  float* Partial(int quantity, int64_t row) const {
    return reinterpret_cast<float*>(memory_.workspace) +
           (quantity * grid_.rows() + row) * grid_.padded_channels();
  }
  float* Channels(int array) const { return Partial(2, 0) + array * grid_.padded_channels(); }
  // Sets all values of the first arrays to 0. Padding channels of a blocked layout must stay zero.
  void ClearChannels(int arrays) const {
    std::fill_n(Channels(0), arrays * grid_.padded_channels(), 0.f);
  }
  // Aligned to 8 bytes, because the number of arrays before it is even.
  ChannelSums Sums() const {
    static_assert(kChannelArrays % 2 == 0);
    return {reinterpret_cast<double*>(Channels(kChannelArrays)), grid_.channels};
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

  // y = x * scale + shift, for one unit.
  template <typename T>
  static void Scale(const Unit& u, const T* x, T* y, const float* scale, const float* shift) {
    Vectors<T>().normalize(x + u.offset, nullptr, y + u.offset, u.plane, scale + u.channel,
                           shift + u.channel, false, 0);
  }

  // Returns the moments of x in Sums(): of valid rows, and of all ranks if the context says so.
  template <typename T>
  ChannelSums Moments(const RunContext& context, const T* x) const {
    const int64_t valid = ValidRows(context, grid_.images);
    ForUnits(valid, [&](const Unit& u) {
      Vectors<T>().moments(x + u.offset, u.plane, Partial(0, u.row) + u.channel,
                           Partial(1, u.row) + u.channel);
    });
    const ChannelSums moments = Sums();
    ForChannels([&](int64_t c) { MergeMoments(c, valid, moments); });
    moments.count() = static_cast<double>(valid * grid_.pixels);
    if (context.sum_over_ranks) CombineMomentsOverRanks(context, moments);
    return moments;
  }

  // Returns the sums of both quantities over the rows of the first images, and the number of
  // pixels.
  ChannelSums AddPartials(int64_t images) const {
    const ChannelSums sums = Sums();
    ForChannels([&](int64_t c) {
      double first = 0, second = 0;
      for (int64_t row = 0; row < images * grid_.pieces; ++row) {
        first += Partial(0, row)[c];
        second += Partial(1, row)[c];
      }
      sums.first(c) = first;
      sums.second(c) = second;
    });
    sums.count() = static_cast<double>(images * grid_.pixels);
    return sums;
  }

  Grid grid_;
  int threads_;
  KernelMemory memory_;

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
};

// Moves the moving statistics of a channel towards the moments of a batch.
inline void MoveStatistics(double decay, const ChannelSums& moments, int64_t c, float& moving_mean,
                           float& moving_variance) {
  const double n = moments.count(), m2 = moments.second(c), rate = 1.0 - decay;
  const double unbiased = n > 1 ? m2 / (n - 1) : m2 / n;
  moving_mean = static_cast<float>(moving_mean + rate * (moments.first(c) - moving_mean));
  moving_variance = static_cast<float>(moving_variance + rate * (unbiased - moving_variance));
}

}  // namespace carole::onednn
