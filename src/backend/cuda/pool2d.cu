// Pooling, one thread for each element of the result. argmax holds the place of the maximum in its
// window, row by row: a byte each, packed in front of its tensor, but of windows too large for
// that.
#include "src/backend/cuda/element.h"
#include "src/backend/cuda/launch.h"
#include "src/core/check.h"

namespace carole::cuda {
namespace {

struct Range {
  int begin, end;
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
  // The windows that hold pixel i.
  __device__ Range Windows(int64_t i) const {
    const unsigned shifted = static_cast<unsigned>(i) + before, by = stride;
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

template <typename T, int N, typename Place>
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
    const int top = g.rows.First(window.row), left = g.columns.First(window.column);
    Floats<N> largest = Load<N>(image + (h.begin * g.columns.size + w.begin) * g.channels);
    int best[N];
    for (int n = 0; n < N; ++n) best[n] = (h.begin - top) * g.columns.window + w.begin - left;
    for (int i = h.begin; i < h.end; ++i) {
      for (int j = w.begin; j < w.end; ++j) {
        const int place = (i - top) * g.columns.window + j - left;
        const Floats<N> values = Load<N>(image + (i * g.columns.size + j) * g.channels);
        for (int n = 0; n < N; ++n) {
          if (!(values[n] > largest[n])) continue;
          largest[n] = values[n];
          best[n] = place;
        }
      }
    }
    const int64_t at = pixel * g.channels + channel;
    Store<N>(y + at, largest);
    if (argmax == nullptr) return;
    Elements<Place, N> places;
    for (int n = 0; n < N; ++n) places.values[n] = static_cast<Place>(best[n]);
    WritePack(argmax + at, places.ToPack());
  }
};

// Of an average. Once for all channels: a division takes as long as all else that is done to one.
__device__ float ShareOfPixel(Range rows, Range columns) {
  return 1 / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
}

template <typename T, int N>
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
    for (int i = h.begin; i < h.end; ++i) {
      for (int j = w.begin; j < w.end; ++j) {
        const Floats<N> values = Load<N>(image + (i * g.columns.size + j) * g.channels);
        for (int n = 0; n < N; ++n) sums[n] += values[n];
      }
    }
    const float share = ShareOfPixel(h, w);
    for (int n = 0; n < N; ++n) sums[n] *= share;
    Store<N>(y + pixel * g.channels + channel, sums);
  }
};

// Each pixel of x asks the windows that hold it, so nothing is added by two threads.
template <typename T, int N, typename Place>
struct PoolBackward {
  Geometry g;
  const T* dy;
  const Place* argmax;  // nullptr: average
  T* dx;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const ImagePixel at_x(pixel, g.rows.size, g.columns.size);
    const int row = static_cast<int>(at_x.row), column = static_cast<int>(at_x.column);
    const Range p = g.rows.Windows(at_x.row), q = g.columns.Windows(at_x.column);
    const int64_t image = at_x.image * g.all_windows();
    Floats<N> sums{};
    for (int i = p.begin; i < p.end; ++i) {
      for (int j = q.begin; j < q.end; ++j) {
        const int64_t at = (image + i * g.columns.windows + j) * g.channels + channel;
        const Floats<N> gradients = Load<N>(dy + at);
        if (argmax == nullptr) {
          const float share = ShareOfPixel(g.rows.Pixels(i), g.columns.Pixels(j));
          for (int n = 0; n < N; ++n) sums[n] += gradients[n] * share;
        } else {
          const int place =
              (row - g.rows.First(i)) * g.columns.window + column - g.columns.First(j);
          const Elements<Place, N> best(ReadPack<N>(argmax + at));
          for (int n = 0; n < N; ++n) sums[n] += best.values[n] == place ? gradients[n] : 0;
        }
      }
    }
    Store<N>(dx + pixel * g.channels + channel, sums);
  }
};

// Calls f.operator()<Place>() with the type that argmax has in windows of this size.
template <typename F>
void WithPlaces(const Pool2dAttributes& a, F f) {
  if (a.window_h * a.window_w <= UINT8_MAX + 1) return f.template operator()<uint8_t>();
  f.template operator()<int32_t>();
}

int64_t PixelsOf(const Shape& x) { return x[0] * x[2] * x[3]; }

template <typename T, int N>
class Pool2d : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes_as<Pool2dAttributes>();
    const Geometry g(in_shape(0), out_shape(0), a);
    const int64_t pixels = PixelsOf(out_shape(0));
    if (a.mode == Pool2dAttributes::Mode::kMax) {
      WithPlaces(a, [&]<typename Place>() {
        auto* argmax = reinterpret_cast<Place*>(out<int32_t>(1));
        ForMatrix<N>(device_.stream, pixels, g.channels,
                     MaxPool<T, N, Place>{g, in<T>(0), out<T>(0), argmax});
      });
    } else {
      ForMatrix<N>(device_.stream, pixels, g.channels, AveragePool<T, N>{g, in<T>(0), out<T>(0)});
    }
  }
};

template <typename T, int N>
class Pool2dBackward : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes_as<Pool2dAttributes>();
    const Geometry g(out_shape(0), in_shape(0), a);
    const bool max = a.mode == Pool2dAttributes::Mode::kMax;
    WithPlaces(a, [&]<typename Place>() {
      const auto* argmax = max ? reinterpret_cast<const Place*>(in<int32_t>(1)) : nullptr;
      ForMatrix<N>(device_.stream, PixelsOf(out_shape(0)), g.channels,
                   PoolBackward<T, N, Place>{g, in<T>(0), argmax, out<T>(0)});
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
