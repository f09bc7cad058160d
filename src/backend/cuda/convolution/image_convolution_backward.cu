// Gradients of the filter and the bias of a net's first layer, on tensor cores. The forward pass
// and the geometry are explained in image_convolution.cu.
//
// The result is, for each tap and filter, the sum over all pixels of all images:
//   dw[filter, tap] = sum over pixels of dy[pixel, filter] * x[pixel's patch, tap]
//   db[filter]      = sum over pixels of dy[pixel, filter]
// dy may be masked by y of a ReLU: dy counts only where y is above 0. Both dy and y are much larger
// than x. A library that multiplies along channels does most of its work on zeros here, too, and it
// reads dy once more for db and for the mask. This kernel reads dy and y once each, and nothing
// else of that size, so it should be nearly as fast as memory.
//
// Data layout. x (N,H,W,C), dy and y (N,P,Q,K) in bf16 or fp16; dw (K,R,S,C) and db (K) in fp32.
// Tiles are the same as in the forward pass: 8 rows of 16 outputs. In terms of MultiplyAdd() the
// sum runs over pixels:
//   a (16,16)   rows: 16 taps; columns: the 16 pixels of a tile row
//   b (16,8)    rows: the same 16 pixels; columns: 8 filters
//   d (16,8)    sums of 16 taps and 8 filters, which stay in registers for all tiles of a block
// A word of `a` or `b` holds two neighboring pixels:
//   patch    word i holds element i of the image and element i + stride * C: the same tap under the
//            next output
//   pairs    for each pair of pixels and each filter, a word with dy of both pixels. dy lies with
//            filters as neighbors, so each thread reads 8 filters of two pixels and swaps halves
//            (GradientPair::Write).
//
// The gradient of the bias costs nothing extra. The 32 rows of the two groups of taps are not all
// used: row number taps() gets the constant 1 for every pixel, so its sums are db. This is why a
// filter must have fewer than kMaxTaps taps.
//
// The phases:
//   1. Each block loops over tiles, as in the forward pass. The loads of x, dy and y for the next
//      tile overlap with the arithmetic of the current one.
//   2. For each tile: write the patch and the masked pairs to shared memory, then multiply. Two
//      groups of warps take 16 taps each. The four warps of a group share the rows of a tile: warp
//      s of a group takes rows s and s + 4.
//   3. At the end, the four warps of a group add their sums in shared memory, one after the other,
//      so that the result does not depend on timing. Each block writes its sums as doubles.
//   4. AddParts() (channel_sums.h) adds the sums of all blocks in a fixed order.
//
// A worked example: VGG's first layer, 3x3x3, stride 1, 64 filters.
//   27 taps and the row of ones make 28 of 32 rows. Warps 0, 2, 4, 6 take taps 0 to 15; warps 1, 3,
//   5, 7 take taps 16 to 26 and the ones (row 27); rows 28 to 31 are zeros.
//   Tap 13 is filter row 1, element 4 (13 = 1 * 9 + 4; rows need no padding here). Its words lie at
//   1 * 64 + 4 in the patch, plus 3 elements for each pixel to the right.
//   A tile reads 8 * 16 * 64 * 2 bytes = 16 KiB of dy, 16 KiB of y, and about 1 KiB of x.
//   At most 2 * 132 blocks each leave 28 * 64 doubles: 3.8 MB in all.
#include "src/backend/cuda/convolution/image_tiles.h"
#include "src/backend/cuda/kernels/channel_sums.h"
#include "src/backend/ops/conv2d.h"

namespace carole::cuda {
namespace image {
namespace {

constexpr auto kIn = kPosition<FilterGradientInputs>;
constexpr auto kOut = kPosition<FilterGradientOutputs>;

template <int kColumns>
constexpr int kBlocksPerMultiprocessor = kColumns == 8 ? 2 : 3;

// dy of two neighboring pixels and kGrain filters, as one thread reads them, and y of the ReLU.
template <typename T>
struct GradientPair {
  Pack<T, kGrain> dy[2] = {}, y[2] = {};

  // Sets dy to 0 unless y is above 0.
  __device__ void Mask() {
    for (int i = 0; i < 2; ++i) {
      const Floats<kGrain> results = ToFloats(y[i]);
      for (int k = 0; k < kGrain; ++k) {
        const uint32_t half = k % 2 == 0 ? 0xFFFF : 0xFFFF0000;
        dy[i].words[k / 2] &= results[k] > 0 ? 0xFFFFFFFF : ~half;
      }
    }
  }
  // Writes kGrain words: word k holds both pixels of filter k.
  __device__ void Write(uint4* words) const {
    uint32_t both[kGrain];
    for (int k = 0; k < kGrain; k += 2) {
      const uint32_t a = dy[0].words[k / 2], b = dy[1].words[k / 2];
      both[k] = (a & 0xFFFF) | b << 16;
      both[k + 1] = a >> 16 | (b & 0xFFFF0000);
    }
    words[0] = {both[0], both[1], both[2], both[3]};
    words[1] = {both[4], both[5], both[6], both[7]};
  }
};

struct FilterGradientTask {
  const uint16_t* x;
  const void *dy, *relu_y;  // relu_y is null if there is no mask
  PartialSums partial;      // sums of each block, for all taps of dw and one more row for db
};

template <typename T>
constexpr uint32_t kOnes = std::is_same_v<T, __half> ? 0x3C003C00 : 0x3F803F80;

// Computes the sums of one block of threads over all of its tiles, for all taps and 8 * kColumns
// filters.
template <typename T, int kColumns, typename Size>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor<kColumns>)
    FilterGradientKernel(ImageConvolution c, Tiles tiles, FilterGradientTask task) {
  constexpr int kTapGroups = kMaxTaps / 16, kShares = kWarps / kTapGroups;
  constexpr int kFilters = 8 * kColumns, kChunks = kFilters / kGrain;
  constexpr int kPitch = kFilters + 8;  // 8 more words: no two lanes read from one bank
  constexpr int kReads = kTileRows * kTilePairs * kChunks / kThreads;
  __shared__ uint32_t patch[Size::kWords];
  __shared__ uint4 pairs[kTileRows * kTilePairs * kPitch / 4];
  const Lane lane;
  const int first_filter = static_cast<int>(blockIdx.y) * kFilters;
  const int tap_group = lane.warp % kTapGroups, share = lane.warp / kTapGroups;
  const int row_taps = c.row_taps(), taps = c.taps(), along = c.stride * c.channels;
  Patch<Size> image(c, along, patch);

  struct Tap {
    int offset = 0;
    uint32_t constant = 0;
    bool is_there = false;
  } own_taps[2];
  Unroll<2>([&](int half) {
    const int tap = tap_group * 16 + half * 8 + lane.g;
    Tap& own = own_taps[half];
    own.is_there = tap < taps;
    own.constant = tap == taps ? kOnes<T> : 0;
    if (own.is_there) own.offset = tap / row_taps * Size::kPitch + tap % row_taps;
  });
  const auto read_index = [&](int i) { return static_cast<int>(threadIdx.x) + i * kThreads; };
  GradientPair<T> reads[kReads];
  const auto read = [&](int64_t number) {
    const Tiles::TilePosition tile = tiles.At(number);
    image.Read(task.x, tile);
    Unroll<kReads>([&](int i) {
      const int filter = first_filter + read_index(i) % kChunks * kGrain;
      const int column = tile.column + read_index(i) / kChunks % kTilePairs * 2;
      const int row = tile.row + read_index(i) / (kChunks * kTilePairs);
      const int64_t pixel = (tile.image * c.p + row) * c.q + column;
      reads[i] = {};
      for (int k = 0; k < 2; ++k) {
        if (filter >= c.filters || row >= c.p || column + k >= c.q) continue;
        const int64_t at = (pixel + k) * c.filters + filter;
        reads[i].dy[k] = ReadPack<kGrain>(static_cast<const T*>(task.dy) + at);
        if (task.relu_y != nullptr)
          reads[i].y[k] = ReadPack<kGrain>(static_cast<const T*>(task.relu_y) + at);
      }
    });
  };

  float sums[kColumns][4] = {};
  read(blockIdx.x);
  for (int64_t number = blockIdx.x; number < tiles.count; number += gridDim.x) {
    __syncthreads();
    image.Write();
    Unroll<kReads>([&](int i) {
      if (task.relu_y != nullptr) reads[i].Mask();
      reads[i].Write(pairs + read_index(i) / kChunks * (kPitch / 4) + read_index(i) % kChunks * 2);
    });
    __syncthreads();
    if (number + gridDim.x < tiles.count) read(number + gridDim.x);
    for (int row = share; row < kTileRows; row += kShares) {
      const uint32_t* const under = patch + row * c.stride * Size::kPitch + 2 * lane.t * along;
      const uint32_t* const words =
          reinterpret_cast<const uint32_t*>(pairs) + (row * kTilePairs + lane.t) * kPitch + lane.g;
      uint32_t a[4];
      Unroll<4>([&](int i) {
        const Tap& tap = own_taps[i % 2];
        const uint32_t word = under[tap.offset + (i < 2 ? 0 : kTilePairs * along)];
        a[i] = tap.is_there ? word : tap.constant;
      });
      Unroll<kColumns>([&](int column) {
        const uint32_t b[2] = {words[8 * column], words[8 * column + 4 * kPitch]};
        MultiplyAdd<T>(sums[column], a, b);
      });
    }
  }

  // Adds the sums of the warps of a tap group, one warp after the other.
  float* const totals = reinterpret_cast<float*>(pairs);  // (taps, filters)
  static_assert(sizeof(pairs) >= sizeof(float) * kMaxTaps * kFilters);
  for (int turn = 0; turn < kShares; ++turn) {
    __syncthreads();
    if (share != turn) continue;
    Unroll<4 * kColumns>([&](int i) {
      const int tap = tap_group * 16 + lane.g + i % 4 / 2 * 8;
      float& total = totals[tap * kFilters + i / 4 * 8 + 2 * lane.t + i % 2];
      total = (turn == 0 ? 0 : total) + sums[i / 4][i % 4];
    });
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < (taps + 1) * kFilters; i += kThreads) {
    const int filter = first_filter + i % kFilters;
    if (filter < c.filters)
      task.partial.At(0, blockIdx.x, int64_t{i / kFilters} * c.filters + filter) = totals[i];
  }
}

// Writes dw (K,R,S,C) and db from the sums (taps + 1, filters).
struct WriteFilterGradient {
  float *dw, *db;
  int taps, filters;

  __device__ void operator()(int64_t channel, const double* sums) const {
    const int number = static_cast<int>(channel), tap = number / filters, filter = number % filters;
    if (tap < taps)
      dw[filter * taps + tap] = static_cast<float>(sums[0]);
    else if (db != nullptr)
      db[filter] = static_cast<float>(sums[0]);
  }
};

template <typename T>
class BackwardFilter : public CudaKernel {
 public:
  BackwardFilter(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device), c_(*ImageConvolution::Of(spec, device)), tiles_(c_) {
    output_layouts_[kOut.dw] = Layout::Nhwc();
    WithPatchSize(c_, [&]<int kColumns, typename>() {
      splits_ = NumBlocks(tiles_, kBlocksPerMultiprocessor<kColumns>);
    });
    workspace_bytes_ = sizeof(double) * static_cast<size_t>(splits_ * sums());
  }

  void Run(const RunContext&) override {
    const bool masks = IsPresent(spec_.inputs, kIn.relu_y);
    const FilterGradientTask task{
        .x = reinterpret_cast<const uint16_t*>(memory_.inputs[kIn.x].data),
        .dy = memory_.inputs[kIn.dy].data,
        .relu_y = masks ? memory_.inputs[kIn.relu_y].data : nullptr,
        .partial = {reinterpret_cast<double*>(memory_.workspace), splits_, sums()}};
    WithPatchSize(c_, [&]<int kColumns, typename Size>() {
      Launch(device_.stream, MakeGrid(splits_, c_.filters, kColumns),
             FilterGradientKernel<T, kColumns, Size>, c_, tiles_, task);
    });
    AddParts<1>(
        device_.stream, task.partial,
        WriteFilterGradient{out<float>(kOut.dw), out<float>(kOut.db), c_.taps(), c_.filters});
  }

 private:
  int64_t sums() const { return int64_t{c_.taps() + 1} * c_.filters; }

  const ImageConvolution c_;
  const Tiles tiles_;
  int64_t splits_ = 0;  // blocks that write partial sums
};

}  // namespace
}  // namespace image

namespace {

bool Supports(const OpSpec& spec, const Device& device) {
  return SupportsTypes(spec, device) && ImageConvolution::Of(spec, device);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2dBackwardFilter,
     .make = image::MakeNarrow<image::BackwardFilter>,
     .supports = Supports,
     .priority = 2},
};

}  // namespace

KernelRows ImageConvolutionBackwardKernels() { return kRows; }

}  // namespace carole::cuda
