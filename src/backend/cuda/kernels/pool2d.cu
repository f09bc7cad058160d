// Pooling: one thread for each pack of channels of a pixel, or of a tile of pixels. argmax holds
// the index of the maximum in its window, row by row. An index is a byte, and the bytes lie packed
// at the start of the int32 tensor; for windows of more than 256 pixels it is an int32.
#include <type_traits>

#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/ops/pool2d.h"
#include "src/core/check.h"

namespace carole::cuda {
namespace {

struct Range {
  int begin, end;

  __device__ int count() const { return end - begin; }
  // Returns the k-th value, or the last one if there are fewer.
  __device__ int At(int k) const { return begin + k < end ? begin + k : end - 1; }
};

// Returns 1 / count. If kWindow is not 0, count is at most kWindow, and the result is selected from
// constants: a division takes as long as everything else.
template <int kWindow>
__device__ float Reciprocal(int count) {
  if constexpr (kWindow == 0) return 1 / static_cast<float>(count);
  float reciprocal = 1;
  Unroll<kWindow>([&](int k) { reciprocal = count == k + 1 ? 1.0f / (k + 1) : reciprocal; });
  return reciprocal;
}

// One direction (rows or columns) of pooling: `size` pixels, and `windows` windows of `window`
// pixels, `stride` pixels apart. `before` is the padding before the first pixel. In 32 bits, since
// 64-bit divisions take several times as long.
struct Axis {
  int size, windows, window, stride, before;
  // Tiles have `stride` pixels each, up to the pixel at which the next window begins. The last
  // window that holds pixels of tile i is number first_window + i.
  int tiles, first_window;

  Axis(int64_t size, int64_t windows, int64_t window, int64_t stride, int64_t before)
      : size(static_cast<int>(size)),
        windows(static_cast<int>(windows)),
        window(static_cast<int>(window)),
        stride(static_cast<int>(stride)),
        before(static_cast<int>(before)),
        tiles(static_cast<int>((size - 1 + before) / stride - before / stride + 1)),
        first_window(static_cast<int>(before / stride)) {}

  // Pixels(i): the pixels of window number i that exist. First(i): its first pixel, which may lie
  // before the image.
  __device__ Range Pixels(int64_t i) const {
    const int first = First(i), last = first + window;
    return {first > 0 ? first : 0, last < size ? last : size};
  }
  __device__ int First(int64_t i) const { return static_cast<int>(i) * stride - before; }
  // The windows that hold pixel i.
  __device__ Range Windows(int i) const {
    const int shifted = i + before, last = shifted / stride + 1;
    const int first = shifted < window ? 0 : (shifted - window) / stride + 1;
    return {first, last < windows ? last : windows};
  }
  __device__ bool Has(int window) const { return window >= 0 && window < windows; }
  // The weight of one pixel in the average of window i, as far as this direction contributes.
  template <int kWindow>
  __device__ float Share(int i) const {
    return Reciprocal<kWindow>(Pixels(i).count());
  }
};

struct Geometry {
  int64_t channels;
  Axis rows, columns;

  Geometry(const Shape& x, const Shape& y, const Pool2dAttributes& a)
      : channels(x[1]),
        rows(x[2], y[2], a.window_h, a.stride_h, a.padding.top),
        columns(x[3], y[3], a.window_w, a.stride_w, a.padding.left) {
    CAROLE_CHECK(x[2] * x[3] <= INT32_MAX, "pooling of {}", x.ToString());
  }
  // Pixels and windows of one image.
  __device__ int64_t pixels() const { return int64_t{rows.size} * columns.size; }
  __device__ int64_t all_windows() const { return int64_t{rows.windows} * columns.windows; }
};

// Calls use(i, j, exists, read(i, j)) for all rows i and columns j, row by row. If kMaxCount is not
// 0, there are at most kMaxCount rows and columns. Then exactly kMaxCount * kMaxCount values are
// read before any is used; those that do not exist repeat another one.
template <int kMaxCount, typename Read, typename Use>
__device__ void ForEachPixel(Range rows, Range columns, const Read& read, const Use& use) {
  if constexpr (kMaxCount > 0) {
    ReadThenUse<kMaxCount * kMaxCount>(
        [&](int k) { return read(rows.At(k / kMaxCount), columns.At(k % kMaxCount)); },
        [&](int k, const auto& value) {
          const int i = rows.begin + k / kMaxCount, j = columns.begin + k % kMaxCount;
          use(i, j, i < rows.end && j < columns.end, value);
        });
  } else {
    for (int i = rows.begin; i < rows.end; ++i)
      for (int j = columns.begin; j < columns.end; ++j) use(i, j, true, read(i, j));
  }
}

// kWindow is the height and width of the window, or 0 for other windows; the same holds for the
// kernels below.
template <typename T, int N, typename ArgmaxIndex, int kWindow>
struct MaxPool {
  Geometry g;
  const T* x;
  T* y;
  ArgmaxIndex* argmax;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const ImagePixel window(pixel, g.rows.windows, g.columns.windows);
    const Range h = g.rows.Pixels(window.row), w = g.columns.Pixels(window.column);
    const T* image = x + window.image * g.pixels() * g.channels + channel;
    const auto read = [&](int i, int j) {
      return ReadPack<N>(image + (i * g.columns.size + j) * g.channels);
    };
    const int first = g.rows.First(window.row) * g.columns.window + g.columns.First(window.column);
    Floats<N> largest = ToFloats(read(h.At(0), w.At(0)));
    int best[N];
    for (int n = 0; n < N; ++n) best[n] = h.begin * g.columns.window + w.begin - first;
    ForEachPixel<kWindow>(h, w, read, [&](int i, int j, bool exists, const Pack<T, N>& pack) {
      const Floats<N> values = ToFloats(pack);
      for (int n = 0; n < N; ++n) {
        const bool larger = exists && values[n] > largest[n];
        largest[n] = larger ? values[n] : largest[n];
        best[n] = larger ? i * g.columns.window + j - first : best[n];
      }
    });
    const int64_t at = pixel * g.channels + channel;
    Store<N>(y + at, largest);
    if (argmax == nullptr) return;
    Elements<ArgmaxIndex, N> indices;
    for (int n = 0; n < N; ++n) indices.values[n] = static_cast<ArgmaxIndex>(best[n]);
    WritePack(argmax + at, indices.ToPack());
  }
};

template <typename T, int N, int kWindow>
struct AveragePool {
  Geometry g;
  const T* x;
  T* y;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const ImagePixel window(pixel, g.rows.windows, g.columns.windows);
    const Range h = g.rows.Pixels(window.row), w = g.columns.Pixels(window.column);
    const T* image = x + window.image * g.pixels() * g.channels + channel;
    Floats<N> sums{};
    ForEachPixel<kWindow>(
        h, w,
        [&](int i, int j) { return ReadPack<N>(image + (i * g.columns.size + j) * g.channels); },
        [&](int, int, bool exists, const Pack<T, N>& pack) {
          const Floats<N> values = ToFloats(pack);
          for (int n = 0; n < N; ++n) sums[n] = exists ? sums[n] + values[n] : sums[n];
        });
    const float share = Reciprocal<kWindow>(h.count()) * Reciprocal<kWindow>(w.count());
    for (int n = 0; n < N; ++n) sums[n] *= share;
    Store<N>(y + pixel * g.channels + channel, sums);
  }
};

// The inputs that all gradient kernels share. Each pixel of x adds up what the windows that hold it
// contribute, so no two threads add to one element. ArgmaxIndex is void for averages.
template <typename T, int N, typename ArgmaxIndex>
struct PoolBackwardTask {
  static constexpr bool kMax = !std::is_void_v<ArgmaxIndex>;
  Geometry g;
  const T* dy;
  const ArgmaxIndex* argmax;
  T* dx;

  struct Nothing {};
  struct Packs {  // inputs for one window
    Pack<T, N> dy;
    std::conditional_t<kMax, Pack<ArgmaxIndex, N>, Nothing> argmax;
  };
  __device__ int64_t Column(int64_t channel) const { return channel; }
  // Returns the index of the element of dy for window (p, q).
  __device__ int64_t Element(int64_t channel, int64_t image, int p, int q) const {
    return (image * g.all_windows() + p * g.columns.windows + q) * g.channels + channel;
  }
  __device__ Packs Read(int64_t at) const {
    Packs packs{ReadPack<N>(dy + at), {}};
    if constexpr (kMax) packs.argmax = ReadPack<N>(argmax + at);
    return packs;
  }
  template <int kWindow>
  __device__ float Share(int p, int q) const {
    return kMax ? 1 : g.rows.Share<kWindow>(p) * g.columns.Share<kWindow>(q);
  }
  // Adds the contribution of a window to the pixel with this index in the window.
  __device__ void Add(const Packs& packs, float share, int index, Floats<N>& sums) const {
    const Floats<N> gradients = ToFloats(packs.dy);
    if constexpr (kMax) {
      const Elements<ArgmaxIndex, N> best(packs.argmax);
      for (int n = 0; n < N; ++n)
        if (best.values[n] == index) sums[n] += gradients[n];
    } else {
      for (int n = 0; n < N; ++n) sums[n] += gradients[n] * share;
    }
  }
};

// The gradient for any window: each thread computes one pixel.
template <typename T, int N, typename ArgmaxIndex>
struct PoolBackward : PoolBackwardTask<T, N, ArgmaxIndex> {
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const Geometry& g = this->g;
    const ImagePixel at(pixel, g.rows.size, g.columns.size);
    const Range rows = g.rows.Windows(at.row), columns = g.columns.Windows(at.column);
    Floats<N> sums{};
    for (int p = rows.begin; p < rows.end; ++p) {
      for (int q = columns.begin; q < columns.end; ++q) {
        const int row = at.row - g.rows.First(p), column = at.column - g.columns.First(q);
        this->Add(this->Read(this->Element(channel, at.image, p, q)), this->template Share<0>(p, q),
                  row * g.columns.window + column, sums);
      }
    }
    Store<N>(this->dx + pixel * g.channels + channel, sums);
  }
};

// The gradient for usual windows: each thread computes a tile of kStride x kStride pixels, which
// all lie in the same windows. So a window is read once for each tile in it, not once for each
// pixel.
template <typename T, int N, typename ArgmaxIndex, int kWindow, int kStride>
struct TiledPoolBackward : PoolBackwardTask<T, N, ArgmaxIndex> {
  using Packs = typename PoolBackwardTask<T, N, ArgmaxIndex>::Packs;
  // The number of windows, in each direction, that hold a tile.
  static constexpr int kWindows = (kWindow - 1) / kStride + 1;
  static constexpr int kAll = kWindows * kWindows;

  __device__ void operator()(int64_t channel, int64_t tile) const {
    const Geometry& g = this->g;
    const ImagePixel at(tile, g.rows.tiles, g.columns.tiles);
    const int p = g.rows.first_window + at.row, q = g.columns.first_window + at.column;
    const int first_p = p - (kWindows - 1), first_q = q - (kWindows - 1);
    const int64_t first = this->Element(channel, at.image, first_p, first_q);
    const int64_t next_column = g.channels, next_row = g.columns.windows * next_column;
    Packs packs[kAll];
    const auto read = [&](int k) {
      packs[k] = this->Read(first + k / kWindows * next_row + k % kWindows * next_column);
    };
    if (g.rows.Has(first_p) && g.rows.Has(p) && g.columns.Has(first_q) && g.columns.Has(q)) {
      Unroll<kAll>(read);  // the common case, without a test for each window
    } else {
      Unroll<kAll>([&](int k) {
        packs[k] = {};
        if (g.rows.Has(first_p + k / kWindows) && g.columns.Has(first_q + k % kWindows)) read(k);
      });
    }
    Floats<N> sums[kStride * kStride]{};
    Unroll<kAll>([&](int k) {
      const float share =
          this->template Share<kWindow>(first_p + k / kWindows, first_q + k % kWindows);
      Unroll<kStride * kStride>([&](int pixel) {
        const int i = (kWindows - 1 - k / kWindows) * kStride + pixel / kStride;
        const int j = (kWindows - 1 - k % kWindows) * kStride + pixel % kStride;
        if (i < kWindow && j < kWindow) this->Add(packs[k], share, i * kWindow + j, sums[pixel]);
      });
    });
    Unroll<kStride * kStride>([&](int pixel) {
      const int i = g.rows.First(p) + pixel / kStride, j = g.columns.First(q) + pixel % kStride;
      if (i < 0 || i >= g.rows.size || j < 0 || j >= g.columns.size) return;
      const int64_t to = at.image * g.pixels() + i * g.columns.size + j;
      Store<N>(this->dx + to * g.channels + channel, sums[pixel]);
    });
  }
};

// Calls f.operator()<ArgmaxIndex, kWindow, kStride>() with the type of argmax's elements, and the
// size and stride of usual windows, which are square. For other windows, kWindow and kStride are 0.
template <typename F>
void WithWindow(const Pool2dAttributes& a, F f) {
  const auto is = [&](int64_t window, int64_t stride) {
    return a.window_h == window && a.window_w == window && a.stride_h == stride &&
           a.stride_w == stride;
  };
  if (is(1, 2)) return f.template operator()<uint8_t, 1, 2>();
  if (is(2, 2)) return f.template operator()<uint8_t, 2, 2>();
  if (is(3, 1)) return f.template operator()<uint8_t, 3, 1>();
  if (is(3, 2)) return f.template operator()<uint8_t, 3, 2>();
  if (a.window_h * a.window_w <= UINT8_MAX + 1) return f.template operator()<uint8_t, 0, 0>();
  f.template operator()<int32_t, 0, 0>();
}

template <typename T, int N>
class Pool2d : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<Pool2dAttributes>();
    const Geometry g(in_shape(0), out_shape(0), a);
    const auto pool = [&](auto f) {
      ForMatrix<N>(device_.stream, PixelsOf(out_shape(0)), g.channels, f);
    };
    WithWindow(a, [&]<typename ArgmaxIndex, int kWindow, int>() {
      if (a.mode == Pool2dAttributes::Mode::kMax)
        pool(MaxPool<T, N, ArgmaxIndex, kWindow>{g, in<T>(0), out<T>(0),
                                                 reinterpret_cast<ArgmaxIndex*>(out<int32_t>(1))});
      else
        pool(AveragePool<T, N, kWindow>{g, in<T>(0), out<T>(0)});
    });
  }
};

template <typename T, int N>
class Pool2dBackward : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<Pool2dAttributes>();
    WithWindow(a, [&]<typename ArgmaxIndex, int kWindow, int kStride>() {
      const bool finds_maxima = a.mode == Pool2dAttributes::Mode::kMax && kWindow != 1;
      finds_maxima ? Pool<ArgmaxIndex, kWindow, kStride>() : Pool<void, kWindow, kStride>();
    });
  }

 private:
  template <typename ArgmaxIndex, int kWindow, int kStride>
  void Pool() {
    const Geometry g(out_shape(0), in_shape(0), spec_.attributes.as<Pool2dAttributes>());
    const ArgmaxIndex* argmax = nullptr;
    if constexpr (!std::is_void_v<ArgmaxIndex>)
      argmax = reinterpret_cast<const ArgmaxIndex*>(in<int32_t>(1));
    const PoolBackwardTask<T, N, ArgmaxIndex> task{g, in<T>(0), argmax, out<T>(0)};
    if constexpr (kWindow > 0) {
      const int64_t tiles = out_shape(0)[0] * g.rows.tiles * g.columns.tiles;
      ForMatrix<N>(device_.stream, tiles, g.channels,
                   TiledPoolBackward<T, N, ArgmaxIndex, kWindow, kStride>{task});
    } else {
      ForMatrix<N>(device_.stream, PixelsOf(out_shape(0)), g.channels,
                   PoolBackward<T, N, ArgmaxIndex>{task});
    }
  }
};

std::unique_ptr<Kernel> MakePool2d(const OpSpec& spec, const Device& device) {
  return MakePacked<Pool2d>(spec, device, spec.inputs[0].shape[1]);
}
std::unique_ptr<Kernel> MakePool2dBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<Pool2dBackward>(spec, device, spec.inputs[0].shape[1]);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kPool2d, .make = MakePool2d},
    {.kind = op::kPool2dBackward, .make = MakePool2dBackward},
};

}  // namespace

KernelRows Pool2dKernels() { return kRows; }

}  // namespace carole::cuda
