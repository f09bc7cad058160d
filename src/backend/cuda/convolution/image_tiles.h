// What both kernels of image_convolution.h share: how they cut the result into tiles, and how the
// image lies under one.
#pragma once

#include <algorithm>

#include "src/backend/cuda/convolution/image_convolution.h"
#include "src/backend/cuda/convolution/tensor_cores.h"
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"

namespace carole::cuda::image {

inline constexpr int kLanes = 32, kWarps = kThreads / kLanes;
inline constexpr int kSide = 16, kPairs = kSide / 2;  // outputs side by side of a tile
inline constexpr int kRows = kWarps;                  // of a tile
// More of them cuDNN does faster: ResNet's 7x7x3 in 0.38 ms at batch 256, such kernels as these in
// 0.63 (cuDNN 9.19 on an H200).
inline constexpr int kMostTaps = 32;
inline constexpr int kGrain = 8;  // filters of 16 bytes

// Where a thread stands in its warp, see MultiplyAdd().
struct Lane {
  int warp = threadIdx.x / kLanes, g = threadIdx.x % kLanes / 4, t = threadIdx.x % 4;
};

// The result in tiles of kRows rows of kSide outputs, of all images.
struct Tiles {
  int across, down;
  int64_t count;

  explicit Tiles(const ImageConvolution& c)
      : across(DivideUp(c.q, kSide)),
        down(DivideUp(c.p, kRows)),
        count(int64_t{c.images} * across * down) {}
  struct Place {
    int64_t image;
    int row, column;  // of the first output
  };
  __device__ Place At(int64_t tile) const {
    const ImagePixel at(tile, down, across);
    return {at.image, at.row * kRows, at.column * kSide};
  }
};

// The image under a tile. In shared memory it lies as words: each element, and the one that is
// `apart` behind it, as tensor cores take two at once. A thread reads its elements long before they
// are wanted: each warp kDown rows, kAlong elements of each in a lane.
template <int kDown_, int kAlong_>
struct PatchCut {
  static constexpr int kDown = kDown_, kAlong = kAlong_;
  static constexpr int kPitch = kAlong * kLanes, kWords = kDown * kWarps * kPitch;

  static bool Fits(const ImageConvolution& c) {
    return c.pixels_under(kRows, c.filter_h) <= kDown * kWarps &&
           c.pixels_under(kSide, c.filter_w) * c.channels <= kPitch;
  }
};
using SmallPatch = PatchCut<2, 2>;  // of 3x3 filters over three channels
using LargePatch = PatchCut<3, 4>;  // with a stride of 2

template <typename Cut>
class Patch {
 public:
  __device__ Patch(const ImageConvolution& c, int apart, uint32_t* words)
      : c_(c), apart_(apart), words_(words) {
    for (int i = static_cast<int>(threadIdx.x); i < Cut::kWords; i += kThreads)
      words[i] = 0;  // those that have nothing behind them keep that
  }
  __device__ void Read(const uint16_t* x, const Tiles::Place& tile) {
    const int image_row = c_.w * c_.channels, rows = c_.pixels_under(kRows, c_.filter_h);
    const int patch_row = c_.pixels_under(kSide, c_.filter_w) * c_.channels;
    const int first = (tile.column * c_.stride - c_.left) * c_.channels;
    Unroll<Cut::kDown>([&](int r) {
      const int under = Row(r), row = tile.row * c_.stride - c_.top + under;
      const bool has_row = under < rows && row >= 0 && row < c_.h;
      const uint16_t* const elements = x + (tile.image * c_.h + row) * image_row + first;
      Unroll<Cut::kAlong>([&](int i) {
        const int at = At(i);
        const bool is_there =
            has_row && at < patch_row && first + at >= 0 && first + at < image_row;
        values_[r][i] = is_there ? elements[at] : uint16_t{0};
      });
    });
  }
  __device__ void Write() const {
    Unroll<Cut::kDown>([&](int r) {
      auto* const halves = reinterpret_cast<uint16_t*>(words_ + Row(r) * Cut::kPitch);
      Unroll<Cut::kAlong>([&](int i) {
        const int at = At(i);
        halves[2 * at] = values_[r][i];
        if (at >= apart_) halves[2 * (at - apart_) + 1] = values_[r][i];
      });
    });
  }

 private:
  static __device__ int Row(int r) { return static_cast<int>(threadIdx.x) / kLanes + r * kWarps; }
  static __device__ int At(int i) { return static_cast<int>(threadIdx.x) % kLanes + i * kLanes; }

  const ImageConvolution& c_;
  const int apart_;
  uint32_t* const words_;
  uint16_t values_[Cut::kDown][Cut::kAlong] = {};
};

// Calls f.operator()<kColumns, Cut>(): as many filters at once as there are, if they fit, and the
// smaller patch, if that does.
template <typename F>
void WithCut(const ImageConvolution& c, F f) {
  const auto with_columns = [&]<typename Cut>() {
    c.filters <= 32 ? f.template operator()<4, Cut>() : f.template operator()<8, Cut>();
  };
  SmallPatch::Fits(c) ? with_columns.template operator()<SmallPatch>()
                      : with_columns.template operator()<LargePatch>();
}

// As many blocks as are at once on the largest GPU go from tile to tile.
inline int64_t BlocksOf(const Tiles& tiles, int at_once) {
  constexpr int64_t kMultiprocessors = 132;
  return std::min(tiles.count, at_once * kMultiprocessors);
}
inline dim3 GridOf(int64_t blocks, int filters, int columns) {
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(DivideUp(filters, 8 * columns)));
}

template <template <typename> class K>
std::unique_ptr<Kernel> MakeNarrow(const OpSpec& spec, const Device& device) {
  if (ElementType(spec) == DType::kBF16) return std::make_unique<K<__nv_bfloat16>>(spec, device);
  return std::make_unique<K<__half>>(spec, device);
}

}  // namespace carole::cuda::image
