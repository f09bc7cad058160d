// Pooling, one thread for each element of the result. argmax holds the place h * W + w of the
// maximum in its image.
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

  // The pixels of window number i.
  __device__ Range Pixels(int64_t i) const {
    const int first = static_cast<int>(i) * stride - before, last = first + window;
    return {first > 0 ? first : 0, last < size ? last : size};
  }
  // The windows that hold pixel i.
  __device__ Range Windows(int64_t i) const {
    const int shifted = static_cast<int>(i) + before;
    const int first = shifted < window ? 0 : (shifted - window) / stride + 1;
    const int last = shifted / stride + 1;
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
    CAROLE_CHECK(x[2] * x[3] <= INT32_MAX, "pooling of {}", x.ToString());  // as argmax holds them
  }
  __device__ int64_t pixels() const { return int64_t{rows.size} * columns.size; }  // of an image
  __device__ int64_t all_windows() const { return int64_t{rows.windows} * columns.windows; }
};

template <typename T, int N>
struct MaxPool {
  Geometry g;
  const T* x;
  T* y;
  int32_t* argmax;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const ImagePixel window(pixel, g.rows.windows, g.columns.windows);
    const Range h = g.rows.Pixels(window.row), w = g.columns.Pixels(window.column);
    const T* image = x + window.image * g.pixels() * g.channels + channel;
    const int first = h.begin * g.columns.size + w.begin;
    Floats<N> largest = Load<N>(image + first * g.channels);
    Pack<int32_t, N> best;
    for (int n = 0; n < N; ++n) best.words[n] = first;
    for (int i = h.begin; i < h.end; ++i) {
      for (int j = w.begin; j < w.end; ++j) {
        const int place = i * g.columns.size + j;
        const Floats<N> values = Load<N>(image + place * g.channels);
        for (int n = 0; n < N; ++n) {
          if (!(values[n] > largest[n])) continue;
          largest[n] = values[n];
          best.words[n] = place;
        }
      }
    }
    const int64_t at = pixel * g.channels + channel;
    Store<N>(y + at, largest);
    if (argmax != nullptr) WritePack(argmax + at, best);
  }
};

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
    const float pixels = static_cast<float>((h.end - h.begin) * (w.end - w.begin));
    for (int n = 0; n < N; ++n) sums[n] /= pixels;
    Store<N>(y + pixel * g.channels + channel, sums);
  }
};

// Each pixel of x asks the windows that hold it, so nothing is added by two threads.
template <typename T, int N>
struct PoolBackward {
  Geometry g;
  const T* dy;
  const int32_t* argmax;  // nullptr: average
  T* dx;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const ImagePixel at_x(pixel, g.rows.size, g.columns.size);
    const int64_t place = at_x.row * g.columns.size + at_x.column;
    const Range p = g.rows.Windows(at_x.row), q = g.columns.Windows(at_x.column);
    const int64_t image = at_x.image * g.all_windows();
    Floats<N> sums{};
    for (int i = p.begin; i < p.end; ++i) {
      for (int j = q.begin; j < q.end; ++j) {
        const int64_t at = (image + i * g.columns.windows + j) * g.channels + channel;
        const Floats<N> gradients = Load<N>(dy + at);
        if (argmax == nullptr) {
          const Range rows = g.rows.Pixels(i), columns = g.columns.Pixels(j);
          const float pixels =
              static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
          for (int n = 0; n < N; ++n) sums[n] += gradients[n] / pixels;
        } else {
          const auto best = ReadPack<N>(argmax + at);
          for (int n = 0; n < N; ++n) sums[n] += best.words[n] == place ? gradients[n] : 0;
        }
      }
    }
    Store<N>(dx + pixel * g.channels + channel, sums);
  }
};

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
      ForMatrix<N>(device_.stream, pixels, g.channels,
                   MaxPool<T, N>{g, in<T>(0), out<T>(0), out<int32_t>(1)});
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
    ForMatrix<N>(device_.stream, PixelsOf(out_shape(0)), g.channels,
                 PoolBackward<T, N>{g, in<T>(0), max ? in<int32_t>(1) : nullptr, out<T>(0)});
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
