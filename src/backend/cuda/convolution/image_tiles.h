// The tiles of the result, and the patch of the image under a tile, for both kernels of
// image_convolution.h. The essay at the top of image_convolution.cu explains them.
#pragma once

#include <algorithm>

#include "src/backend/cuda/convolution/image_convolution.h"
#include "src/backend/cuda/convolution/tensor_cores.h"
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"

namespace carole::cuda::image {

inline constexpr int kLanes = 32, kWarps = kThreads / kLanes;
inline constexpr int kTileWidth = 16;  // outputs in a row of a tile
inline constexpr int kTilePairs = kTileWidth / 2;
inline constexpr int kTileRows = kWarps;
// With more taps, cuDNN is faster: ResNet's 7x7x3 takes it 0.38 ms at batch 256, and a kernel like
// these 0.63 ms (cuDNN 9.19 on an H200).
inline constexpr int kMaxTaps = 32;
inline constexpr int kGrain = 8;  // filters that a thread loads or stores at once: 16 bytes

// The warp of a thread, and its lane 4 * g + t; see MultiplyAdd().
struct Lane {
  int warp = threadIdx.x / kLanes, g = threadIdx.x % kLanes / 4, t = threadIdx.x % 4;
};

// The tiles of the result, of all images: kTileRows rows of kTileWidth outputs each.
struct Tiles {
  int across, down;
  int64_t count;

  explicit Tiles(const ImageConvolution& c)
      : across(DivideUp(c.q, kTileWidth)),
        down(DivideUp(c.p, kTileRows)),
        count(int64_t{c.images} * across * down) {}
  struct TilePosition {
    int64_t image;
    int row, column;  // the first output of the tile
  };
  __device__ TilePosition At(int64_t tile) const {
    const ImagePixel at(tile, down, across);
    return {at.image, at.row * kTileRows, at.column * kTileWidth};
  }
};

// The size of a patch: the part of the image under a tile. Each warp reads kDown rows of it, and
// each lane kAlong elements of such a row.
template <int kDown_, int kAlong_>
struct PatchSize {
  static constexpr int kDown = kDown_, kAlong = kAlong_;
  static constexpr int kPitch = kAlong * kLanes, kWords = kDown * kWarps * kPitch;

  static bool Fits(const ImageConvolution& c) {
    return c.pixels_under(kTileRows, c.filter_h) <= kDown * kWarps &&
           c.pixels_under(kTileWidth, c.filter_w) * c.channels <= kPitch;
  }
};
using SmallPatch = PatchSize<2, 2>;  // fits 3x3 filters over three channels with stride 1
using LargePatch = PatchSize<3, 4>;  // fits the same filters with stride 2

// The patch under one tile. Shared memory holds one 32-bit word for each element: the element
// itself and the one that lies `pair_distance` elements later, since tensor cores take two elements
// at once. Read() loads the patch of the next tile into registers, long before Write() stores it.
template <typename Size>
class Patch {
 public:
  // `words` is shared memory of Size::kWords words.
  __device__ Patch(const ImageConvolution& c, int pair_distance, uint32_t* words)
      : c_(c), pair_distance_(pair_distance), words_(words) {
    for (int i = static_cast<int>(threadIdx.x); i < Size::kWords; i += kThreads)
      words[i] = 0;  // the last elements have no partner: the upper half of their words stays 0
  }
  __device__ void Read(const uint16_t* x, const Tiles::TilePosition& tile) {
    const int image_row = c_.w * c_.channels, rows = c_.pixels_under(kTileRows, c_.filter_h);
    const int patch_row = c_.pixels_under(kTileWidth, c_.filter_w) * c_.channels;
    const int first = (tile.column * c_.stride - c_.left) * c_.channels;
    Unroll<Size::kDown>([&](int r) {
      const int under = Row(r), row = tile.row * c_.stride - c_.top + under;
      const bool has_row = under < rows && row >= 0 && row < c_.h;
      const uint16_t* const elements = x + (tile.image * c_.h + row) * image_row + first;
      Unroll<Size::kAlong>([&](int i) {
        const int at = At(i);
        const bool is_there =
            has_row && at < patch_row && first + at >= 0 && first + at < image_row;
        values_[r][i] = is_there ? elements[at] : uint16_t{0};
      });
    });
  }
  __device__ void Write() const {
    Unroll<Size::kDown>([&](int r) {
      auto* const halves = reinterpret_cast<uint16_t*>(words_ + Row(r) * Size::kPitch);
      Unroll<Size::kAlong>([&](int i) {
        const int at = At(i);
        halves[2 * at] = values_[r][i];
        if (at >= pair_distance_) halves[2 * (at - pair_distance_) + 1] = values_[r][i];
      });
    });
  }

 private:
  static __device__ int Row(int r) { return static_cast<int>(threadIdx.x) / kLanes + r * kWarps; }
  static __device__ int At(int i) { return static_cast<int>(threadIdx.x) % kLanes + i * kLanes; }

  const ImageConvolution& c_;
  const int pair_distance_;
  uint32_t* const words_;
  uint16_t values_[Size::kDown][Size::kAlong] = {};
};

// Calls f.operator()<kColumns, Size>() with the number of filters at once, 8 * kColumns, and the
// smallest patch size that fits.
template <typename F>
void WithPatchSize(const ImageConvolution& c, F f) {
  const auto with_columns = [&]<typename Size>() {
    c.filters <= 32 ? f.template operator()<4, Size>() : f.template operator()<8, Size>();
  };
  SmallPatch::Fits(c) ? with_columns.template operator()<SmallPatch>()
                      : with_columns.template operator()<LargePatch>();
}

// Returns the number of blocks of threads: as many as the largest GPU can run at once. Each of them
// loops over tiles.
inline int64_t NumBlocks(const Tiles& tiles, int blocks_per_multiprocessor) {
  constexpr int64_t kMultiprocessors = 132;
  return std::min(tiles.count, blocks_per_multiprocessor * kMultiprocessors);
}
inline dim3 MakeGrid(int64_t blocks, int filters, int columns) {
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(DivideUp(filters, 8 * columns)));
}

// Makes the kernel K<bf16> or K<fp16> for an operation.
template <template <typename> class K>
std::unique_ptr<Kernel> MakeNarrow(const OpSpec& spec, const Device& device) {
  if (ElementType(spec) == DType::kBF16) return std::make_unique<K<__nv_bfloat16>>(spec, device);
  return std::make_unique<K<__half>>(spec, device);
}

}  // namespace carole::cuda::image
