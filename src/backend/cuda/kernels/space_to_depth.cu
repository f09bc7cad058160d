// The space-to-depth functions of copy.h: pixel blocks of images, filters for pixel blocks, and the
// gradients of these filters.
#include "src/backend/cuda/kernels/copy.h"
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/core/check.h"

namespace carole::cuda {
namespace {

constexpr int kPackChannels = 8;  // 16 bytes

// Gathers channels first … first + 7 of one pixel block of y. A filter for two outputs has twice
// as many "images" as x: in those of the second output, everything lies `shift` columns farther to
// the right.
template <int kChannels, int kColumns>
struct GatherBlocks {
  static constexpr int kReadsInFlight = 2;
  const uint16_t* x;
  uint16_t* y;
  int64_t images, h, w, p, q, y_channels, top, left, shift;
  int rows;

  __device__ int Column(int64_t first) const { return static_cast<int>(first); }
  __device__ Pack<uint16_t, kPackChannels> Read(int first, int64_t block) const {
    const ImagePixel at(block, p, q);
    const bool is_second = at.image >= images;
    const uint16_t* image = x + (is_second ? at.image - images : at.image) * h * w * kChannels;
    const int64_t top_row = int64_t{at.row} * rows - top;
    const int64_t left_column = int64_t{at.column} * kColumns - (is_second ? left + shift : left);
    Elements<uint16_t, kPackChannels> values;
    for (int i = 0; i < kPackChannels; ++i) {
      const int pixel = (first + i) / kChannels, channel = (first + i) % kChannels;
      const int64_t row = top_row + pixel / kColumns, column = left_column + pixel % kColumns;
      const bool is_there =
          pixel < rows * kColumns && row >= 0 && row < h && column >= 0 && column < w;
      values.values[i] = is_there ? image[(row * w + column) * kChannels + channel] : uint16_t{0};
    }
    return values.ToPack();
  }
  __device__ void Write(int first, int64_t block, const Pack<uint16_t, kPackChannels>& read) const {
    WritePack(y + block * y_channels + first, read);
  }
};

void Gather(CUstream_st* stream, const void* x, const Shape& x_shape, const Padding& padding,
            const PixelBlock& pixel_block, void* y, const Shape& y_shape) {
  CAROLE_CHECK(y_shape[1] % kPackChannels == 0 &&
                   y_shape[1] >= x_shape[1] * pixel_block.rows * pixel_block.columns,
               "pixel blocks of {} do not fit {}", x_shape.ToString(), y_shape.ToString());
  const auto gather = [&]<int kChannels, int kColumns>() {
    ForMatrix<kPackChannels>(
        stream, PixelsOf(y_shape), y_shape[1],
        GatherBlocks<kChannels, kColumns>{
            static_cast<const uint16_t*>(x), static_cast<uint16_t*>(y), x_shape[0], x_shape[2],
            x_shape[3], y_shape[2], y_shape[3], y_shape[1], padding.top, padding.left,
            pixel_block.stride(), pixel_block.rows});
  };
  const auto with_columns = [&]<int kChannels>() {
    if (pixel_block.columns == 2) return gather.template operator()<kChannels, 2>();
    CAROLE_CHECK_EQ(pixel_block.columns, 4, "columns of a pixel block");
    gather.template operator()<kChannels, 4>();
  };
  switch (x_shape[1]) {
    case 1:
      return with_columns.operator()<1>();
    case 2:
      return with_columns.operator()<2>();
    case 3:
      return with_columns.operator()<3>();
    default:
      CAROLE_CHECK_EQ(x_shape[1], 4, "channels of an image");
      with_columns.operator()<4>();
  }
}

// Computes one element of w's gradient: the sum of the gradients for each output of a pixel block.
template <typename From>
struct ScatterFilter {
  const From* from;
  float* to;
  PixelBlock pixel_block;
  int k, channels, r, s;  // of w
  int from_channels, from_r, from_s;

  __device__ void operator()(int64_t i) const {
    const auto number = static_cast<int>(i);
    const int channel = number % channels, column = number / channels % s;
    const int row = number / channels / s % r, filter = number / channels / s / r;
    float sum = 0;
    for (int output = 0; output < pixel_block.outputs; ++output) {
      const int shifted = column + output * pixel_block.stride();
      const int64_t block =
          (int64_t{output * k + filter} * from_r + row / pixel_block.rows) * from_s +
          shifted / pixel_block.columns;
      const int pixel =
          row % pixel_block.rows * pixel_block.columns + shifted % pixel_block.columns;
      sum += static_cast<float>(from[block * from_channels + pixel * channels + channel]);
    }
    to[i] = sum;
  }
};

template <typename To>
struct RepeatRounded {
  const float* from;
  To* to;
  int64_t count;

  __device__ void operator()(int64_t i) const { to[i] = static_cast<To>(from[i % count]); }
};

}  // namespace

void SpaceToDepth(CUstream_st* stream, const void* x, const Shape& x_shape, const Padding& padding,
                  const PixelBlock& pixel_block, void* y, const Shape& y_shape) {
  CAROLE_CHECK_EQ(y_shape[0], x_shape[0], "images in pixel blocks");
  Gather(stream, x, x_shape, padding, pixel_block, y, y_shape);
}

void FilterToDepth(CUstream_st* stream, const void* w, const Shape& w_shape,
                   const PixelBlock& pixel_block, void* to, const Shape& to_shape) {
  CAROLE_CHECK_EQ(to_shape[0], w_shape[0] * pixel_block.outputs, "filters for pixel blocks");
  Gather(stream, w, w_shape, {}, pixel_block, to, to_shape);
}

void FilterToPairs(CUstream_st* stream, DType type, const void* w, const Shape& w_shape, void* to,
                   const Shape& to_shape) {
  const Shape half{w_shape[0], to_shape[1], w_shape[2], w_shape[3] + 1};
  CAROLE_CHECK_EQ(to_shape.size(), 2 * half.size(), "elements of a filter for two outputs");
  Pad(stream, type, w, w_shape, {.right = 1}, to, half);
  Pad(stream, type, w, w_shape, {.left = 1}, static_cast<uint16_t*>(to) + half.size(), half);
}

void CastFilterFromDepth(CUstream_st* stream, DType from_type, const void* from,
                         const Shape& from_shape, const PixelBlock& pixel_block, float* w,
                         const Shape& w_shape) {
  const auto size = [](const Shape& shape, int i) { return static_cast<int>(shape[i]); };
  const auto scatter = [&]<typename From>() {
    ForEach(stream, w_shape.size(),
            ScatterFilter<From>{static_cast<const From*>(from), w, pixel_block, size(w_shape, 0),
                                size(w_shape, 1), size(w_shape, 2), size(w_shape, 3),
                                size(from_shape, 1), size(from_shape, 2), size(from_shape, 3)});
  };
  from_type == DType::kBF16 ? scatter.operator()<__nv_bfloat16>() : scatter.operator()<__half>();
}

void RepeatBias(CUstream_st* stream, const float* from, int64_t count, int times, DType to_type,
                void* to) {
  WithType(to_type, [&]<typename To>() {
    ForEach(stream, count * times, RepeatRounded<To>{from, static_cast<To*>(to), count});
  });
}

}  // namespace carole::cuda
