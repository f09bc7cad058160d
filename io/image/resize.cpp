// Bilinear resizing, fused with cropping, flipping, color distortion and normalization.
//
// The problem. Training turns each photo into a small float array: crop, resize to 224x224, flip,
// distort colors, normalize. As separate operations (as in TensorFlow's graph) each step reads and
// writes a whole float image, and the decoder produces pixels that nobody uses. ResizeBilinear()
// does it in one pass, row by row, over data that stays in the cache. The results must equal
// TensorFlow's up to rounding, so the order of the arithmetic is TensorFlow's: first horizontally,
// then vertically, then colors, then normalization.
//
// The coordinates (TensorFlow 1, align_corners=False, no half-pixel centers). With scale = in /
// out, output pixel i reads the source at i * scale, between the pixels `lower` and `upper`:
//     value = source[lower] + (source[upper] - source[lower]) * fraction
// Example: 5 pixels are resized to 4, scale 1.25.
//     i          0      1      2      3
//     i * scale  0      1.25   2.5    3.75
//     lower      0      1      2      3
//     upper      1      2      3      4
//     fraction   0      0.25   0.5    0.75
// These three arrays are the Taps of an axis. If only the pixels [first, first + count) of the
// output are wanted, the taps are computed only for them. So "resize to 256, then crop 224" needs
// no larger image. `mirrored` stores the taps in reverse order.
//
// The phases of BilinearPass::Run():
//   1. FillTaps() for rows and columns.
//   2. Trim() finds the smallest range of source rows and columns that all taps need. Only this
//      region of the image is decoded.
//   3. For each output row: take the two source rows of its taps, resized horizontally, and
//      interpolate between them. The kernel (resize_simd) also applies colors and normalization
//      while the values are in registers or in the first-level cache.
// Output rows go from top to bottom, and adjacent ones mostly need the same source rows. The last
// two resized source rows are cached, so each source row is resized horizontally once.
//
// A smaller decode. If the image becomes at least 2, 4 or 8 times smaller in both directions and
// may be scaled, the JPEG decoder gives it at 1/divisor of its size. A pixel of that image is the
// mean of `divisor` pixels in each direction, so its center lies between them. The coordinates are
// converted such that the crop stays at the same place. Example: divisor 2, the source begins at
// pixel 3. Pixel 3 has its center at 3.5, which is 1.75 in the smaller image, or index 1.25: begin
// = 3 / 2 = 1, and coordinate (0 + 1.5) / 2 - 0.5 = 0.25.
//
// Resize(), at the end of the file, is the simple form: weighted sums of whole float images. It
// covers the methods that Inception's preprocessing uses when it is not in fast mode, and tests
// compare the fused pass with it.
//
// Measured: `./run bench-input` with 500x375 JPEGs to 224x224 decodes, crops and augments 1,808
// images/s on one thread; tf.data 932.
#include "io/image/resize.h"

#include <algorithm>
#include <cmath>

#include "io/image/resize_simd.h"
#include "src/core/check.h"
#include "src/core/simd.h"

namespace carole::io {
namespace {

const ResizeKernels& Kernels() {
  static const ResizeKernels kernels = PickSimd(
      simd_v2::MakeResizeKernels, simd_v3::MakeResizeKernels, simd_v4::MakeResizeKernels)();
  return kernels;
}

// Returns how many times smaller the axis becomes.
float ShrinkFactor(const ResizeAxis& axis) {
  return static_cast<float>(axis.in) / static_cast<float>(axis.out);
}

// For each output pixel of an axis: the two source pixels and the weight of the second one.
struct Taps {
  std::vector<int32_t> lower;
  std::vector<int32_t> upper;
  std::vector<float> fraction;
};

// Computes the taps of an axis as indices into the image at 1/divisor of its size. The axis begins
// at pixel `start` of the full-size image. A pixel of the smaller image lies at the center of the
// `divisor` pixels that it replaces.
void FillTaps(const ResizeAxis& axis, int start, int divisor, Taps& taps) {
  CAROLE_CHECK(
      axis.in > 0 && axis.first >= 0 && axis.count > 0 && axis.first + axis.count <= axis.out,
      "pixels {} to {} of {}, resized from {}", axis.first, axis.first + axis.count, axis.out,
      axis.in);
  taps.lower.resize(axis.count);
  taps.upper.resize(axis.count);
  taps.fraction.resize(axis.count);
  const float scale = ShrinkFactor(axis);
  const int begin = start / divisor, last = (start + axis.in - 1) / divisor;
  const float middle = static_cast<float>(start % divisor) + 0.5f;
  for (int i = 0; i < axis.count; ++i) {
    const int to = axis.mirrored ? axis.count - 1 - i : i;
    float coordinate = static_cast<float>(axis.first + i) * scale;
    if (divisor > 1)
      coordinate = std::max((coordinate + middle) / static_cast<float>(divisor) - 0.5f, 0.0f);
    const int lower = std::min(static_cast<int>(coordinate), last - begin);
    taps.lower[to] = begin + lower;
    taps.upper[to] = std::min(begin + lower + 1, last);
    taps.fraction[to] = coordinate - static_cast<float>(lower);
  }
}

// A range of source pixels.
struct Range {
  int first = 0;
  int count = 0;
};

// Returns the smallest range that contains all sources, and makes the taps relative to it.
Range Trim(Taps& taps) {
  const int first = *std::min_element(taps.lower.begin(), taps.lower.end());
  const int last = *std::max_element(taps.upper.begin(), taps.upper.end());
  for (int32_t& index : taps.lower) index -= first;
  for (int32_t& index : taps.upper) index -= first;
  return {first, last - first + 1};
}

// The implementation of ResizeBilinear(). A thread keeps one object, to reuse its memory.
class BilinearPass {
 public:
  void Run(const ResizeTask& task, LazyImage& image, std::span<float> out) {
    channels_ = image.channels();
    const int divisor =
        image.DivisorFor(std::min(ShrinkFactor(task.rows), ShrinkFactor(task.columns)));
    FillTaps(task.rows, task.source.top, divisor, rows_);
    FillTaps(task.columns, task.source.left, divisor, columns_);
    const Range rows = Trim(rows_);
    const Range columns = Trim(columns_);
    const ImageView pixels = image.Decode(
        {.top = rows.first, .left = columns.first, .height = rows.count, .width = columns.count},
        divisor);
    Prepare(task, pixels);
    const size_t row_values = static_cast<size_t>(task.columns.count) * channels_;
    CAROLE_CHECK_EQ(out.size(), row_values * task.rows.count, "values of a resized image");
    const RowFinish finish{.subtract = subtract_.data(),
                           .multiply = task.map.multiply,
                           .distort = task.map.distort,
                           .brightness = task.map.brightness,
                           .saturation = task.map.saturation};
    for (int y = 0; y < task.rows.count; ++y) {
      const float* above = ResizedRow(rows_.lower[y], rows_.upper[y]);
      const float* below = ResizedRow(rows_.upper[y], rows_.lower[y]);
      Kernels().lerp_rows(above, below, rows_.fraction[y], row_values, finish,
                          out.data() + y * row_values);
    }
  }

 private:
  void Prepare(const ResizeTask& task, const ImageView& pixels) {
    pixels_ = pixels;
    unit_ = task.map.unit;
    for (int32_t& index : columns_.lower) index *= channels_;
    for (int32_t& index : columns_.upper) index *= channels_;
    const size_t count = static_cast<size_t>(task.columns.count) * channels_;
    floats_.resize(static_cast<size_t>(pixels.width) * channels_ + kRowSlack);
    subtract_.resize(count);
    for (size_t i = 0; i < count; ++i) subtract_[i] = task.map.subtract[i % channels_];
    for (CachedRow& row : cache_) {
      row.index = -1;
      row.values.resize(count + kRowSlack);
    }
  }

  // Returns source row `index`, resized horizontally. The last two rows are cached. `other` is
  // the row that is used together with this one, so it must stay in the cache.
  const float* ResizedRow(int index, int other) {
    for (const CachedRow& row : cache_) {
      if (row.index == index) return row.values.data();
    }
    CachedRow& row = cache_[0].index == other ? cache_[1] : cache_[0];
    row.index = index;
    const size_t count = static_cast<size_t>(pixels_.width) * channels_;
    Kernels().bytes_to_floats(pixels_.pixels + index * count, count, unit_, floats_.data());
    const ColumnLerp columns{.lower = columns_.lower.data(),
                             .upper = columns_.upper.data(),
                             .fraction = columns_.fraction.data(),
                             .pixels = columns_.lower.size()};
    const auto lerp = channels_ == 3 ? Kernels().lerp_columns_3 : Kernels().lerp_columns_1;
    lerp(floats_.data(), columns, row.values.data());
    return row.values.data();
  }

  struct CachedRow {
    int index = -1;
    std::vector<float> values;
  };

  Taps rows_;
  Taps columns_;
  ImageView pixels_;
  int channels_ = 3;
  float unit_ = 1;
  std::vector<float> subtract_;
  std::vector<float> floats_;
  std::array<CachedRow, 2> cache_;
};

// An output pixel of Resize() along one axis: a weighted sum of a few source pixels.
struct Weights {
  std::vector<int> index;
  std::vector<float> weight;
};

Weights NearestWeights(int position, float scale, int in) {
  return {{std::min(static_cast<int>(static_cast<float>(position) * scale), in - 1)}, {1.0f}};
}

Weights BilinearWeights(int position, float scale, int in) {
  const float coordinate = static_cast<float>(position) * scale;
  const int lower = std::min(static_cast<int>(coordinate), in - 1);
  const float fraction = coordinate - static_cast<float>(lower);
  return {{lower, std::min(lower + 1, in - 1)}, {1 - fraction, fraction}};
}

// Keys' cubic convolution with A = -0.75. TensorFlow 1 reads the weights from a table of 1024
// steps, so the fraction is rounded to 1/1024.
Weights BicubicWeights(int position, float scale, int in) {
  constexpr double kA = -0.75;
  constexpr double kSteps = 1024;
  const float coordinate = static_cast<float>(position) * scale;
  const int at = static_cast<int>(coordinate);
  const double x = std::rint((coordinate - static_cast<float>(at)) * kSteps) / kSteps;
  const auto near = [](double d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
  const auto far = [](double d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
  Weights weights;
  for (int i = -1; i <= 2; ++i) weights.index.push_back(std::clamp(at + i, 0, in - 1));
  for (double w : {far(1 + x), near(x), near(1 - x), far(2 - x)})
    weights.weight.push_back(static_cast<float>(w));
  return weights;
}

// The weight of a source pixel is the part of it that the output pixel covers.
Weights AreaWeights(int position, float scale, int in) {
  const float begin = static_cast<float>(position) * scale;
  const float end = static_cast<float>(position + 1) * scale;
  Weights weights;
  for (int i = static_cast<int>(begin); static_cast<float>(i) < end; ++i) {
    const auto low = static_cast<float>(i);
    const bool ends = low + 1 > end;
    const float covered = low < begin ? (ends ? scale : low + 1 - begin) : (ends ? end - low : 1);
    weights.index.push_back(std::min(i, in - 1));
    weights.weight.push_back(covered / scale);
  }
  return weights;
}

std::vector<Weights> MakeWeights(int in, int out, ResizeMethod method) {
  constexpr Weights (*kMake[])(int, float, int) = {BilinearWeights, NearestWeights, BicubicWeights,
                                                   AreaWeights};
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  std::vector<Weights> all;
  all.reserve(out);
  for (int i = 0; i < out; ++i) all.push_back(kMake[static_cast<int>(method)](i, scale, in));
  return all;
}

}  // namespace

void ResizeBilinear(const ResizeTask& task, LazyImage& image, std::span<float> out) {
  thread_local BilinearPass pass;
  pass.Run(task, image, out);
}

FloatImage Resize(const FloatImage& in, int out_height, int out_width, ResizeMethod method) {
  const int c = in.channels;
  const std::vector<Weights> rows = MakeWeights(in.height, out_height, method);
  const std::vector<Weights> columns = MakeWeights(in.width, out_width, method);
  FloatImage out{.height = out_height, .width = out_width, .channels = c};
  out.values.resize(static_cast<size_t>(out_height) * out_width * c);
  std::vector<float> row(static_cast<size_t>(in.width) * c);
  for (int y = 0; y < out_height; ++y) {
    std::fill(row.begin(), row.end(), 0.0f);
    for (size_t k = 0; k < rows[y].index.size(); ++k) {
      const float* from = in.values.data() + static_cast<size_t>(rows[y].index[k]) * row.size();
      for (size_t i = 0; i < row.size(); ++i) row[i] += rows[y].weight[k] * from[i];
    }
    float* to = out.values.data() + static_cast<size_t>(y) * out_width * c;
    for (int x = 0; x < out_width; ++x, to += c) {
      for (size_t k = 0; k < columns[x].index.size(); ++k) {
        const float* from = row.data() + static_cast<size_t>(columns[x].index[k]) * c;
        for (int i = 0; i < c; ++i) to[i] += columns[x].weight[k] * from[i];
      }
    }
  }
  return out;
}

FloatImage ToFloats(const ImageView& image, float unit) {
  FloatImage out{.height = image.height, .width = image.width, .channels = image.channels};
  out.values.resize(static_cast<size_t>(image.height) * image.width * image.channels);
  Kernels().bytes_to_floats(image.pixels, out.values.size(), unit, out.values.data());
  return out;
}

void ToBytes(std::span<const float> values, int channels, float scale,
             const std::array<float, 3>& offset, std::span<uint8_t> bytes) {
  constexpr size_t kBlock = 192;  // values; a multiple of 1 and 3 channels
  std::array<float, kBlock> offsets;
  for (size_t i = 0; i < kBlock; ++i) offsets[i] = offset[i % static_cast<size_t>(channels)];
  for (size_t begin = 0; begin < bytes.size(); begin += kBlock) {
    Kernels().floats_to_bytes(values.data() + begin, std::min(kBlock, bytes.size() - begin), scale,
                              offsets.data(), bytes.data() + begin);
  }
}

}  // namespace carole::io
