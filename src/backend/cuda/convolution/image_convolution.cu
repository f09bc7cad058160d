// Convolutions of images of few channels by few taps, on tensor cores. For libraries these are
// slow, as they multiply along channels; here it is along all taps of a filter. Blocks of threads
// go from tile to tile of the result, the part of the image under it in shared memory. So y moves
// once, nearly as fast as memory does.
#include "src/backend/cuda/convolution/convolution_task.h"
#include "src/backend/cuda/convolution/image_convolution.h"
#include "src/backend/cuda/convolution/image_tiles.h"

namespace carole::cuda {
namespace image {
namespace {

template <int kColumns>
constexpr int kBlocksAtOnce = kColumns == 8 ? 3 : 4;  // on a multiprocessor

// y: kColumns times 8 filters of the pixels of a tile, each warp one of its rows.
template <typename T, int kColumns, typename Cut>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<kColumns>)
    ForwardKernel(ImageConvolution c, Tiles tiles, const uint16_t* x, const uint16_t* w,
                  const float* bias, T* y, bool relu) {
  constexpr int kFilters = 8 * kColumns, kSteps = kMostTaps / 16, kWords = kMostTaps / 2;
  constexpr int kPart = 4 * kGrain;   // of a pixel's filters, kGrain in each of four lanes
  constexpr int kPitch = kWords + 8;  // 8: no two lanes in one bank
  __shared__ uint32_t patch[Cut::kWords];
  __shared__ uint2 filters[kFilters * kPitch / 2];  // a lane's two words of a step together
  __shared__ float biases[kFilters];
  const Lane lane;
  const int first_filter = static_cast<int>(blockIdx.y) * kFilters;
  const int row_taps = c.row_taps(), even = c.even_row_taps();
  Patch<Cut> image(c, 1, patch);
  Tiles::Place next = tiles.At(blockIdx.x);  // the grid has no more blocks than there are tiles
  image.Read(x, next);

  // Columns of the products in such an order that each lane's results are neighbors in y.
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

  int offsets[kSteps][2];  // of taps, in the patch; of those that are none, any: times zero
  Unroll<2 * kSteps>([&](int i) {
    const int tap = 8 * i + 2 * lane.t;
    offsets[i / 2][i % 2] = tap / even < c.filter_h ? tap / even * Cut::kPitch + tap % even : 0;
  });
  const int along = c.stride * c.channels;
  const uint32_t* const under = patch + lane.warp * c.stride * Cut::kPitch + lane.g * along;
  for (int64_t number = blockIdx.x; number < tiles.count; number += gridDim.x) {
    const Tiles::Place tile = next;
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
        a[i] = under[offsets[step][i / 2] + (i % 2 == 0 ? 0 : kPairs * along)];
      Unroll<kColumns>([&](int column) {
        const uint2 words = filters[(8 * column + lane.g) * (kPitch / 2) + 4 * step + lane.t];
        const uint32_t b[2] = {words.x, words.y};
        MultiplyAdd<T>(sums[column], a, b);
      });
    });
    const int row = tile.row + lane.warp;
    Unroll<2>([&](int half) {
      const int column = tile.column + lane.g + kPairs * half;
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
  using Places = Conv2dPlaces;

 public:
  Forward(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device), c_(*ImageConvolution::Of(spec, device)) {
    input_layouts_[Places::kW] = Layout::Nhwc();
  }

  void Run(const RunContext&) override {
    const Tiles tiles(c_);
    WithCut(c_, [&]<int kColumns, typename Cut>() {
      const int64_t blocks = BlocksOf(tiles, kBlocksAtOnce<kColumns>);
      Launch(device_.stream, GridOf(blocks, c_.filters, kColumns), ForwardKernel<T, kColumns, Cut>,
             c_, tiles, reinterpret_cast<const uint16_t*>(memory_.inputs[Places::kX].data),
             reinterpret_cast<const uint16_t*>(memory_.inputs[Places::kW].data),
             in<float>(Places::kBias), out<T>(0), spec_.attributes_as<Conv2dAttributes>().relu);
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
  if (device.capability < kTensorCoresOfWarps || !task.IsOfImage() || w[0] % image::kGrain != 0 ||
      w.size() / w[0] >= image::kMostTaps || x.size() > INT32_MAX)
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
  const bool fits =
      c.filter_h * c.even_row_taps() <= image::kMostTaps && image::LargePatch::Fits(c);
  return fits ? std::optional(c) : std::nullopt;
}

std::unique_ptr<Kernel> MakeImageConv2d(const OpSpec& spec, const Device& device) {
  return image::MakeNarrow<image::Forward>(spec, device);
}

}  // namespace carole::cuda
