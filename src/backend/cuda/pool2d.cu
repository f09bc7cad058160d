// Pooling, one thread for each element of the result. argmax holds the place of the maximum in its
// window, row by row: a byte each, packed in front of its tensor, but of windows too large for
// that.
#include <type_traits>

#include "src/backend/cuda/element.h"
#include "src/backend/cuda/launch.h"
#include "src/core/check.h"

namespace carole::cuda {
namespace {

struct Range {
  int begin, end;

  // The k-th one, or the last one.
  __device__ int At(int k) const { return begin + k < end ? begin + k : end - 1; }
};

// One direction of a window: `size` pixels under windows of `window`, `stride` apart. In 32 bits,
// since divisions of 64 take several times as long.
struct Axis {
  int size, windows, window, stride, before;

  Axis(int64_t size, int64_t windows, int64_t window, int64_t stride, int64_t before)
      : size(static_cast<int>(size)),
        windows(static_cast<int>(windows)),
        window(static_cast<int>(window)),
        stride(static_cast<int>(stride)),
        before(static_cast<int>(before)) {}

  // The pixels of window number i, and the one it would begin with if the image had it.
  __device__ Range Pixels(int64_t i) const {
    const int first = First(i), last = first + window;
    return {first > 0 ? first : 0, last < size ? last : size};
  }
  __device__ int First(int64_t i) const { return static_cast<int>(i) * stride - before; }
  // The windows that hold pixel i. kStride: 0 or the stride, by which nothing need be divided then.
  template <int kStride>
  __device__ Range Windows(int64_t i) const {
    const unsigned shifted = static_cast<unsigned>(i) + before, by = kStride > 0 ? kStride : stride;
    const int first = i + before < window ? 0 : (shifted - window) / by + 1;
    const int last = shifted / by + 1;
    return {first, last < windows ? last : windows};
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
  __device__ int64_t pixels() const { return int64_t{rows.size} * columns.size; }  // of an image
  __device__ int64_t all_windows() const { return int64_t{rows.windows} * columns.windows; }
};

// use(i, j, exists, read(i, j)) for all of rows and columns, row by row. If there are at most kMost
// of each, not 0, all are read before any is used; what does not exist is another one's value.
template <int kMost, typename Read, typename Use>
__device__ void ForPlaces(Range rows, Range columns, const Read& read, const Use& use) {
  if constexpr (kMost > 0) {
    ReadFirst<kMost * kMost>([&](int k) { return read(rows.At(k / kMost), columns.At(k % kMost)); },
                             [&](int k, const auto& value) {
                               const int i = rows.begin + k / kMost, j = columns.begin + k % kMost;
                               use(i, j, i < rows.end && j < columns.end, value);
                             });
  } else {
    for (int i = rows.begin; i < rows.end; ++i)
      for (int j = columns.begin; j < columns.end; ++j) use(i, j, true, read(i, j));
  }
}

// kWindow: 0 or the height and width of the window; here and below.
template <typename T, int N, typename Place, int kWindow>
struct MaxPool {
  Geometry g;
  const T* x;
  T* y;
  Place* argmax;

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
    ForPlaces<kWindow>(h, w, read, [&](int i, int j, bool exists, const Pack<T, N>& pack) {
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
    Elements<Place, N> places;
    for (int n = 0; n < N; ++n) places.values[n] = static_cast<Place>(best[n]);
    WritePack(argmax + at, places.ToPack());
  }
};

// Of an average. Once for all channels: a division takes as long as all else that is done to one.
template <int kWindow>
__device__ float ShareOfPixel(Range rows, Range columns) {
  const int pixels = (rows.end - rows.begin) * (columns.end - columns.begin);
  if (kWindow > 0 && pixels == kWindow * kWindow) return 1.0f / (kWindow * kWindow);
  return 1 / static_cast<float>(pixels);
}

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
    ForPlaces<kWindow>(
        h, w,
        [&](int i, int j) { return ReadPack<N>(image + (i * g.columns.size + j) * g.channels); },
        [&](int, int, bool exists, const Pack<T, N>& pack) {
          const Floats<N> values = ToFloats(pack);
          for (int n = 0; n < N; ++n) sums[n] = exists ? sums[n] + values[n] : sums[n];
        });
    const float share = ShareOfPixel<kWindow>(h, w);
    for (int n = 0; n < N; ++n) sums[n] *= share;
    Store<N>(y + pixel * g.channels + channel, sums);
  }
};

// Each pixel of x asks the windows that hold it, so nothing is added by two threads. Place: void
// for averages.
template <typename T, int N, typename Place, int kWindow, int kStride>
struct PoolBackward {
  static constexpr bool kMax = !std::is_void_v<Place>;
  static constexpr int kWindows = kWindow > 0 ? (kWindow - 1) / kStride + 1 : 0;  // hold a pixel
  Geometry g;
  const T* dy;
  const Place* argmax;
  T* dx;

  struct Nothing {};
  struct Packs {
    Pack<T, N> dy;
    std::conditional_t<kMax, Pack<Place, N>, Nothing> argmax;
  };
  __device__ Packs Read(int64_t at) const {
    Packs packs{ReadPack<N>(dy + at), {}};
    if constexpr (kMax) packs.argmax = ReadPack<N>(argmax + at);
    return packs;
  }
  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const ImagePixel at(pixel, g.rows.size, g.columns.size);
    const Range p = g.rows.Windows<kStride>(at.row), q = g.columns.Windows<kStride>(at.column);
    const int64_t image = at.image * g.all_windows();
    Floats<N> sums{};
    ForPlaces<kWindows>(
        p, q,
        [&](int i, int j) {
          return Read((image + i * g.columns.windows + j) * g.channels + channel);
        },
        [&](int i, int j, bool exists, const Packs& packs) {
          const Floats<N> gradients = ToFloats(packs.dy);
          if constexpr (kMax) {
            const int row = at.row - g.rows.First(i), column = at.column - g.columns.First(j);
            const int place = exists ? row * g.columns.window + column : -1;
            const Elements<Place, N> best(packs.argmax);
            for (int n = 0; n < N; ++n) sums[n] += best.values[n] == place ? gradients[n] : 0;
          } else {
            const float share = ShareOfPixel<kWindow>(g.rows.Pixels(i), g.columns.Pixels(j));
            for (int n = 0; n < N; ++n) sums[n] = exists ? sums[n] + gradients[n] * share : sums[n];
          }
        });
    Store<N>(dx + pixel * g.channels + channel, sums);
  }
};

// Calls f.operator()<Place, kWindow, kStride>(): the type that argmax has in windows of this size;
// the numbers of usual ones, which are square, or 0.
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
    const auto& a = spec_.attributes_as<Pool2dAttributes>();
    const Geometry g(in_shape(0), out_shape(0), a);
    const auto pool = [&](auto f) {
      ForMatrix<N>(device_.stream, PixelsOf(out_shape(0)), g.channels, f);
    };
    WithWindow(a, [&]<typename Place, int kWindow, int>() {
      if (a.mode == Pool2dAttributes::Mode::kMax)
        pool(MaxPool<T, N, Place, kWindow>{g, in<T>(0), out<T>(0),
                                           reinterpret_cast<Place*>(out<int32_t>(1))});
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
    const auto& a = spec_.attributes_as<Pool2dAttributes>();
    const Geometry g(out_shape(0), in_shape(0), a);
    const auto pool = [&](auto f) {
      ForMatrix<N>(device_.stream, PixelsOf(out_shape(0)), g.channels, f);
    };
    WithWindow(a, [&]<typename Place, int kWindow, int kStride>() {
      const bool finds_maxima = a.mode == Pool2dAttributes::Mode::kMax && kWindow != 1;
      if (finds_maxima)
        pool(PoolBackward<T, N, Place, kWindow, kStride>{
            g, in<T>(0), reinterpret_cast<const Place*>(in<int32_t>(1)), out<T>(0)});
      else
        pool(PoolBackward<T, N, void, kWindow, kStride>{g, in<T>(0), nullptr, out<T>(0)});
    });
  }
};

}  // namespace

std::unique_ptr<Kernel> MakePool2d(const OpSpec& spec, const Device& device) {
  return MakePacked<Pool2d>(spec, device, spec.inputs[0].shape[1]);
}
std::unique_ptr<Kernel> MakePool2dBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<Pool2dBackward>(spec, device, spec.inputs[0].shape[1]);
}

}  // namespace carole::cuda
