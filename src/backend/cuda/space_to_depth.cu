#include "src/backend/cuda/copy.h"
#include "src/backend/cuda/element.h"
#include "src/backend/cuda/launch.h"
#include "src/core/check.h"

namespace carole::cuda {
namespace {

constexpr int kPackChannels = 8;  // 16 bytes

// y's channels first … first + 7 of a block.
template <int kChannels>
struct GatherBlocks {
  static constexpr int kAhead = 2;
  const uint16_t* x;
  uint16_t* y;
  int64_t h, w, p, q, top, left;

  __device__ int Column(int64_t first) const { return static_cast<int>(first); }
  __device__ Pack<uint16_t, kPackChannels> Read(int first, int64_t block) const {
    const ImagePixel at(block, p, q);
    Elements<uint16_t, kPackChannels> values;
    for (int i = 0; i < kPackChannels; ++i) {
      const int pixel = (first + i) / kChannels, channel = (first + i) % kChannels;
      const int64_t row = 2 * at.row - top + pixel / 2, column = 2 * at.column - left + pixel % 2;
      const bool is_there = pixel < 4 && row >= 0 && row < h && column >= 0 && column < w;
      values.values[i] =
          is_there ? x[((at.image * h + row) * w + column) * kChannels + channel] : uint16_t{0};
    }
    return values.ToPack();
  }
  __device__ void Write(int first, int64_t block, const Pack<uint16_t, kPackChannels>& read) const {
    WritePack(y + block * kBlockChannels + first, read);
  }
};

template <typename T>
struct ScatterFilter {
  const T* from;
  float* to;
  int channels, r, s;

  __device__ void operator()(int64_t i) const {
    const auto number = static_cast<int>(i);
    const int channel = number % channels, column = number / channels % s;
    const int row = number / channels / s % r, filter = number / channels / s / r;
    const int64_t block = (int64_t{filter} * ((r + 1) / 2) + row / 2) * ((s + 1) / 2) + column / 2;
    const int place = (row % 2 * 2 + column % 2) * channels + channel;
    to[i] = static_cast<float>(from[block * kBlockChannels + place]);
  }
};

}  // namespace

void SpaceToDepth(CUstream_st* stream, const void* x, const Shape& x_shape, const Padding& padding,
                  void* y, const Shape& y_shape) {
  CAROLE_CHECK_EQ(y_shape[1], kBlockChannels, "channels of a block");
  const auto gather = [&]<int kChannels>() {
    ForMatrix<kPackChannels>(
        stream, y_shape[0] * y_shape[2] * y_shape[3], kBlockChannels,
        GatherBlocks<kChannels>{static_cast<const uint16_t*>(x), static_cast<uint16_t*>(y),
                                x_shape[2], x_shape[3], y_shape[2], y_shape[3], padding.top,
                                padding.left});
  };
  switch (x_shape[1]) {
    case 1:
      return gather.operator()<1>();
    case 2:
      return gather.operator()<2>();
    case 3:
      return gather.operator()<3>();
    default:
      CAROLE_CHECK_EQ(x_shape[1], 4, "channels of an image");
      return gather.operator()<4>();
  }
}

void CastFilterFromDepth(CUstream_st* stream, DType from_type, const void* from, float* to,
                         const Shape& to_shape) {
  const auto scatter = [&]<typename T>() {
    ForEach(stream, to_shape.size(),
            ScatterFilter<T>{static_cast<const T*>(from), to, static_cast<int>(to_shape[1]),
                             static_cast<int>(to_shape[2]), static_cast<int>(to_shape[3])});
  };
  from_type == DType::kBF16 ? scatter.operator()<__nv_bfloat16>() : scatter.operator()<__half>();
}

}  // namespace carole::cuda
