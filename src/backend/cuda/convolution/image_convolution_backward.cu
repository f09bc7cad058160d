// Gradients of the filters of image_convolution.h, and of their biases, on tensor cores: dy moves
// once, nearly as fast as memory does, and what masks it moves beside it.
#include "src/backend/cuda/convolution/image_tiles.h"
#include "src/backend/cuda/kernels/channel_sums.h"

namespace carole::cuda {
namespace image {
namespace {

template <int kColumns>
constexpr int kBlocksAtOnce = kColumns == 8 ? 2 : 3;  // on a multiprocessor

// The pixels of dy that a thread reads, two side by side, of kGrain filters; and of a ReLU's y.
template <typename T>
struct GradientPair {
  Pack<T, kGrain> dy[2] = {}, y[2] = {};

  // dy, where y is above zero.
  __device__ void Mask() {
    for (int i = 0; i < 2; ++i) {
      const Floats<kGrain> results = ToFloats(y[i]);
      for (int k = 0; k < kGrain; ++k) {
        const uint32_t half = k % 2 == 0 ? 0xFFFF : 0xFFFF0000;
        dy[i].words[k / 2] &= results[k] > 0 ? 0xFFFFFFFF : ~half;
      }
    }
  }
  // words[k] = both pixels of filter k.
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
  const void *dy, *relu_y;  // relu_y: null where nothing masks dy
  PartialSums partial;      // each block's: of all taps, and one more that is 1 everywhere: db's
};

template <typename T>
constexpr uint32_t kOnes = std::is_same_v<T, __half> ? 0x3C003C00 : 0x3F803F80;

// Sums over pixels of products: rows are taps, 16 for every second warp, columns kColumns times 8
// filters. The warps of the same taps share the rows of a tile.
template <typename T, int kColumns, typename Cut>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<kColumns>)
    FilterGradientKernel(ImageConvolution c, Tiles tiles, FilterGradientTask task) {
  constexpr int kTapGroups = kMostTaps / 16, kShares = kWarps / kTapGroups;
  constexpr int kFilters = 8 * kColumns, kChunks = kFilters / kGrain;
  constexpr int kPitch = kFilters + 8;  // 8: no two lanes in one bank
  constexpr int kReads = kRows * kPairs * kChunks / kThreads;
  __shared__ uint32_t patch[Cut::kWords];
  __shared__ uint4 pairs[kRows * kPairs * kPitch / 4];
  const Lane lane;
  const int first_filter = static_cast<int>(blockIdx.y) * kFilters;
  const int tap_group = lane.warp % kTapGroups, share = lane.warp / kTapGroups;
  const int row_taps = c.row_taps(), taps = c.taps(), along = c.stride * c.channels;
  Patch<Cut> image(c, along, patch);

  struct Tap {
    int offset = 0;
    uint32_t constant = 0;
    bool is_there = false;
  } of_rows[2];
  Unroll<2>([&](int half) {
    const int tap = tap_group * 16 + half * 8 + lane.g;
    Tap& own = of_rows[half];
    own.is_there = tap < taps;
    own.constant = tap == taps ? kOnes<T> : 0;
    if (own.is_there) own.offset = tap / row_taps * Cut::kPitch + tap % row_taps;
  });
  const auto place_of = [&](int i) { return static_cast<int>(threadIdx.x) + i * kThreads; };
  GradientPair<T> reads[kReads];
  const auto read = [&](int64_t number) {
    const Tiles::Place tile = tiles.At(number);
    image.Read(task.x, tile);
    Unroll<kReads>([&](int i) {
      const int filter = first_filter + place_of(i) % kChunks * kGrain;
      const int column = tile.column + place_of(i) / kChunks % kPairs * 2;
      const int row = tile.row + place_of(i) / (kChunks * kPairs);
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
      reads[i].Write(pairs + place_of(i) / kChunks * (kPitch / 4) + place_of(i) % kChunks * 2);
    });
    __syncthreads();
    if (number + gridDim.x < tiles.count) read(number + gridDim.x);
    for (int row = share; row < kRows; row += kShares) {
      const uint32_t* const under = patch + row * c.stride * Cut::kPitch + 2 * lane.t * along;
      const uint32_t* const words =
          reinterpret_cast<const uint32_t*>(pairs) + (row * kPairs + lane.t) * kPitch + lane.g;
      uint32_t a[4];
      Unroll<4>([&](int i) {
        const Tap& tap = of_rows[i % 2];
        const uint32_t word = under[tap.offset + (i < 2 ? 0 : kPairs * along)];
        a[i] = tap.is_there ? word : tap.constant;
      });
      Unroll<kColumns>([&](int column) {
        const uint32_t b[2] = {words[8 * column], words[8 * column + 4 * kPitch]};
        MultiplyAdd<T>(sums[column], a, b);
      });
    }
  }

  // The warps' shares, one after the other.
  float* const totals = reinterpret_cast<float*>(pairs);  // of each tap
  static_assert(sizeof(pairs) >= sizeof(float) * kMostTaps * kFilters);
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

// dw (K,R,S,C) and db of sums by tap.
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
  using Places = FilterGradientPlaces;

 public:
  BackwardFilter(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device), c_(*ImageConvolution::Of(spec, device)), tiles_(c_) {
    output_layouts_[Places::kDw] = Layout::Nhwc();
    WithCut(c_,
            [&]<int kColumns, typename>() { splits_ = BlocksOf(tiles_, kBlocksAtOnce<kColumns>); });
    workspace_bytes_ = sizeof(double) * static_cast<size_t>(splits_ * sums());
  }

  void Run(const RunContext&) override {
    const bool masks = IsPresent(spec_.inputs, Places::kReluY);
    const FilterGradientTask task{
        .x = reinterpret_cast<const uint16_t*>(memory_.inputs[Places::kX].data),
        .dy = memory_.inputs[Places::kDy].data,
        .relu_y = masks ? memory_.inputs[Places::kReluY].data : nullptr,
        .partial = {reinterpret_cast<double*>(memory_.workspace), splits_, sums()}};
    WithCut(c_, [&]<int kColumns, typename Cut>() {
      Launch(device_.stream, GridOf(splits_, c_.filters, kColumns),
             FilterGradientKernel<T, kColumns, Cut>, c_, tiles_, task);
    });
    AddParts<1>(device_.stream, task.partial,
                WriteFilterGradient{out<float>(Places::kDw), out<float>(Places::kDb), c_.taps(),
                                    c_.filters});
  }

 private:
  int64_t sums() const { return int64_t{c_.taps() + 1} * c_.filters; }

  const ImageConvolution c_;
  const Tiles tiles_;
  int64_t splits_ = 0;  // blocks that leave a part behind
};

}  // namespace
}  // namespace image

std::unique_ptr<Kernel> MakeImageConv2dBackwardFilter(const OpSpec& spec, const Device& device) {
  return image::MakeNarrow<image::BackwardFilter>(spec, device);
}

}  // namespace carole::cuda
