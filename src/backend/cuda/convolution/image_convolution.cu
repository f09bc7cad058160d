// The first layer of a net on tensor cores: convolutions of images of few channels by few taps.
//
// Why a kernel of our own. Libraries multiply along channels, and an image has 3 of them: most of a
// tensor core would multiply zeros. This kernel multiplies along all taps of a filter instead. A
// 3x3 filter over 3 channels has 27 taps, which nearly fill the 32 that two tensor-core
// instructions take. The result y is much larger than the image, so the kernel should be as fast as
// memory can take y. The limit is kMaxTaps: ResNet's 7x7x3 (147 taps) takes cuDNN 0.38 ms at batch
// 256 and a kernel like this 0.63 ms (cuDNN 9.19 on an H200), so it is left to cuDNN.
//
// Data layout. x (N,H,W,C), w (K,R,S,C) and y (N,P,Q,K) in bf16 or fp16; the bias is fp32. The
// result is divided into tiles of 8 rows of 16 outputs. A block of 256 threads has 8 warps; each
// warp computes one row of a tile, for all filters of the block (32 or 64). In terms of
// MultiplyAdd() (tensor_cores.h):
//   a (16,16)   rows: the 16 outputs of a tile row; columns: 16 taps
//   b (16,8)    rows: 16 taps; columns: 8 filters
//   d (16,8)    sums of 16 outputs and 8 filters, in fp32 registers
//
// Shared memory holds three things:
//   patch     the part of the image under the tile. Each word holds an element and its successor:
//             a word of `a` is two neighboring taps, and they can begin at any element, also at an
//             odd one. So each element lies there twice, and a load of `a` is one word.
//   filters   all filters, as words of two neighboring taps. A filter row with an odd number of
//             taps gets a zero, so that no pair crosses the end of a row. The two words of `b` that
//             a lane needs (k = 2t and k = 2t + 8) lie together, so that one load gets both.
//             Filters are permuted (below). The pitch has 8 more words, so that no two lanes read
//             from one bank.
//   biases    in fp32
//
// The permutation of filters. In d, lane t of a group of four holds columns 2t and 2t + 1 of each
// of four column groups. If column n were filter n, a lane would hold filters 0, 1, 8, 9, 16, 17,
// 24, 25, and stores of y would be 4 bytes each. So the columns hold other filters. In a part of 32
// filters,
//   column 8 * c + 2 * t + i  holds  filter 8 * t + 2 * c + i    (c, t < 4; i < 2)
// Lane t then holds filters 8t … 8t + 7, which are 16 consecutive bytes of y: one store.
//
// The phases:
//   1. Load filters and biases into shared memory, once.
//   2. Each block loops over tiles, with a stride of the grid. The grid has as many blocks as the
//      largest GPU runs at once.
//   3. For each tile: write the patch to shared memory from registers, and synchronize. Start to
//      load the patch of the next tile into registers; these loads overlap with the arithmetic.
//   4. Multiply: 2 steps of 16 taps, for each group of 8 filters.
//   5. Add the bias, apply ReLU, round, and store y. Outputs beyond the edge of y are not stored.
//
// A worked example: VGG's first layer, 3x3x3, stride 1, 64 filters, 224x224.
//   A row of the filter has 9 taps, padded to 10; 3 rows make 30 of 32 taps.
//   The patch under a tile has 8 - 1 + 3 = 10 rows of (16 - 1 + 3) * 3 = 54 elements. SmallPatch
//   has room for 16 rows of 64 elements: 1,024 words, 4 KiB. Tap 13 is element 3 of filter row 1
//   (13 = 1 * 10 + 3): its offset in the patch is 1 * 64 + 3. For each tile a warp issues 2 * 8 =
//   16 tensor-core instructions. The block reads about 1 KiB of x and writes 8 * 16 * 64 * 2 bytes
//   = 16 KiB of y. An image has 14 * 28 = 392 tiles.
// With stride 2 the patch has 17 rows of 99 elements and needs LargePatch (24 rows of 128).
#include "src/backend/cuda/convolution/convolution_task.h"
#include "src/backend/cuda/convolution/image_convolution.h"
#include "src/backend/cuda/convolution/image_tiles.h"

namespace carole::cuda {
namespace image {
namespace {

constexpr auto kIn = kPosition<Conv2dInputs>;

template <int kColumns>
constexpr int kBlocksPerMultiprocessor = kColumns == 8 ? 3 : 4;

// Computes y for 8 * kColumns filters, tile by tile. Each warp computes one row of a tile.
template <typename T, int kColumns, typename Size>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor<kColumns>)
    ForwardKernel(ImageConvolution c, Tiles tiles, const uint16_t* x, const uint16_t* w,
                  const float* bias, T* y, bool relu) {
  constexpr int kFilters = 8 * kColumns, kSteps = kMaxTaps / 16, kWords = kMaxTaps / 2;
  constexpr int kPart = 4 * kGrain;   // filters that four lanes hold for one pixel, kGrain each
  constexpr int kPitch = kWords + 8;  // 8 more words: no two lanes read from one bank
  __shared__ uint32_t patch[Size::kWords];
  __shared__ uint2 filters[kFilters * kPitch / 2];  // the two words that a lane needs in one step
  __shared__ float biases[kFilters];
  const Lane lane;
  const int first_filter = static_cast<int>(blockIdx.y) * kFilters;
  const int row_taps = c.row_taps(), even = c.even_row_taps();
  Patch<Size> image(c, 1, patch);
  Tiles::TilePosition next = tiles.At(blockIdx.x);  // there are at least as many tiles as blocks
  image.Read(x, next);

  // The permutation of filters: each lane's results are neighbors in y.
  for (int i = static_cast<int>(threadIdx.x); i < kFilters * kWords; i += kThreads) {
    const int n = i / kWords, word = i % kWords, row = 2 * word / even, tap = 2 * word % even;
    const int filter =
        first_filter + n / kPart * kPart + n % 8 / 2 * kGrain + n % kPart / 8 * 2 + n % 2;
    const auto element = [&](int at) -> uint32_t {
      const bool is_there = filter < c.filters && row < c.filter_h && at < row_taps;
      return is_there ? w[(filter * c.filter_h + row) * row_taps + at] : 0;
    };
    const int lane_word = word % 4 * 2 + word % 8 / 4;
    reinterpret_cast<uint32_t*>(filters)[n * kPitch + word / 8 * 8 + lane_word] =
        element(tap) | element(tap + 1) << 16;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kFilters; i += kThreads)
    biases[i] = bias != nullptr && first_filter + i < c.filters ? bias[first_filter + i] : 0;

  // Offsets of this lane's taps in the patch. Surplus taps may have any offset: their weight is 0.
  int offsets[kSteps][2];
  Unroll<2 * kSteps>([&](int i) {
    const int tap = 8 * i + 2 * lane.t;
    offsets[i / 2][i % 2] = tap / even < c.filter_h ? tap / even * Size::kPitch + tap % even : 0;
  });
  const int along = c.stride * c.channels;
  const uint32_t* const under = patch + lane.warp * c.stride * Size::kPitch + lane.g * along;
  for (int64_t number = blockIdx.x; number < tiles.count; number += gridDim.x) {
    const Tiles::TilePosition tile = next;
    __syncthreads();
    image.Write();
    __syncthreads();
    if (number + gridDim.x < tiles.count) {
      next = tiles.At(number + gridDim.x);
      image.Read(x, next);
    }
    float sums[kColumns][4] = {};
    Unroll<kSteps>([&](int step) {
      uint32_t a[4];
      for (int i = 0; i < 4; ++i)
        a[i] = under[offsets[step][i / 2] + (i % 2 == 0 ? 0 : kTilePairs * along)];
      Unroll<kColumns>([&](int column) {
        const uint2 words = filters[(8 * column + lane.g) * (kPitch / 2) + 4 * step + lane.t];
        const uint32_t b[2] = {words.x, words.y};
        MultiplyAdd<T>(sums[column], a, b);
      });
    });
    const int row = tile.row + lane.warp;
    Unroll<2>([&](int half) {
      const int column = tile.column + lane.g + kTilePairs * half;
      if (row >= c.p || column >= c.q) return;
      T* const pixel = y + ((tile.image * c.p + row) * c.q + column) * c.filters;
      for (int part = 0; part < kFilters / kPart; ++part) {
        const int own = part * kPart + lane.t * kGrain;
        if (first_filter + own >= c.filters) continue;
        Floats<kGrain> values;
        for (int k = 0; k < kGrain; ++k) {
          const float sum = sums[4 * part + k / 2][2 * half + k % 2] + biases[own + k];
          values[k] = relu && sum < 0 ? 0 : sum;  // NaN stays NaN
        }
        Store(pixel + first_filter + own, values);
      }
    });
  }
}

template <typename T>
class Forward : public CudaKernel {
 public:
  Forward(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device), c_(*ImageConvolution::Of(spec, device)) {
    input_layouts_[kIn.w] = Layout::Nhwc();
  }

  void Run(const RunContext&) override {
    const Tiles tiles(c_);
    WithPatchSize(c_, [&]<int kColumns, typename Size>() {
      const int64_t blocks = NumBlocks(tiles, kBlocksPerMultiprocessor<kColumns>);
      Launch(device_.stream, MakeGrid(blocks, c_.filters, kColumns),
             ForwardKernel<T, kColumns, Size>, c_, tiles,
             reinterpret_cast<const uint16_t*>(memory_.inputs[kIn.x].data),
             reinterpret_cast<const uint16_t*>(memory_.inputs[kIn.w].data), in<float>(kIn.bias),
             out<T>(0), spec_.attributes.as<Conv2dAttributes>().relu);
    });
  }

 private:
  const ImageConvolution c_;
};

}  // namespace
}  // namespace image

std::optional<ImageConvolution> ImageConvolution::Of(const OpSpec& spec, const Device& device) {
  const auto task = ConvolutionTask::Of(spec);
  const Shape &x = task.x, &w = task.w, &y = task.y;
  if (device.capability < kMinTensorCoreCapability || !task.IsFirstLayer() ||
      w[0] % image::kGrain != 0 || w.size() / w[0] >= image::kMaxTaps || x.size() > INT32_MAX)
    return {};
  const auto size = [](int64_t value) { return static_cast<int>(value); };
  const ImageConvolution c{
      .images = size(x[0]),
      .h = size(x[2]),
      .w = size(x[3]),
      .channels = size(x[1]),
      .filters = size(w[0]),
      .filter_h = size(w[2]),
      .filter_w = size(w[3]),
      .p = size(y[2]),
      .q = size(y[3]),
      .stride = size(task.a.stride_w),
      .top = size(task.a.padding.top),
      .left = size(task.a.padding.left),
  };
  const bool fits = c.filter_h * c.even_row_taps() <= image::kMaxTaps && image::LargePatch::Fits(c);
  return fits ? std::optional(c) : std::nullopt;
}

namespace {

bool Supports(const OpSpec& spec, const Device& device) {
  return SupportsTypes(spec, device) && ImageConvolution::Of(spec, device);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2d,
     .make = image::MakeNarrow<image::Forward>,
     .supports = Supports,
     .priority = 1},
};

}  // namespace

KernelRows ImageConvolutionKernels() { return kRows; }

}  // namespace carole::cuda
