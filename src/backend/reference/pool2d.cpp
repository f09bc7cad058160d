// Pooling. argmax holds for each element of y the pixel h * W + w of its image that has the
// maximum.
#include "src/backend/ops/pool2d.h"

#include <algorithm>

#include "src/backend/reference/reference.h"
#include "src/core/divide_up.h"

namespace carole::reference {
namespace {

// A window clipped to the image.
struct Window {
  int64_t top, bottom, left, right;  // [top, bottom) x [left, right)

  int64_t pixels() const { return (bottom - top) * (right - left); }
};

struct Geometry {
  int64_t n, c, h, w, p, q;
  Pool2dAttributes a;

  Geometry(const Shape& x, const Shape& y, const Pool2dAttributes& a)
      : n(x[0]), c(x[1]), h(x[2]), w(x[3]), p(y[2]), q(y[3]), a(a) {
    CAROLE_CHECK_EQ(
        y,
        (Shape{n, c, WindowOutput(h, a.padding.top, a.padding.bottom, a.window_h, a.stride_h),
               WindowOutput(w, a.padding.left, a.padding.right, a.window_w, a.stride_w)}),
        "output of a pool of {}", x.ToString());
    CAROLE_CHECK(std::max(a.padding.top, a.padding.bottom) < a.window_h &&
                     std::max(a.padding.left, a.padding.right) < a.window_w,
                 "pool2d: a window of {}x{} can lie entirely in the padding", a.window_h,
                 a.window_w);
  }

  Window At(int64_t row, int64_t column) const {
    const int64_t top = row * a.stride_h - a.padding.top;
    const int64_t left = column * a.stride_w - a.padding.left;
    return {std::max<int64_t>(top, 0), std::min(top + a.window_h, h), std::max<int64_t>(left, 0),
            std::min(left + a.window_w, w)};
  }

  // Calls f(h * W + w) for the pixels of a window, row by row.
  template <typename F>
  void ForPixels(const Window& window, const F& f) const {
    for (int64_t i = window.top; i < window.bottom; ++i) {
      for (int64_t j = window.left; j < window.right; ++j) f(i * w + j);
    }
  }
};

template <typename T>
class Pool2d : public ReferenceKernel {
 public:
  Pool2d(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        g_(in_shape(0), out_shape(0), spec.attributes.as<Pool2dAttributes>()) {}

  void Run(const RunContext&) override {
    int32_t* argmax = out<int32_t>(1);
    ForIndices(threads_, g_.n * g_.p, [&](int64_t row) {
      const T* x = in<T>(0) + row / g_.p * g_.h * g_.w * g_.c;
      for (int64_t q = 0; q < g_.q; ++q) {
        const Window window = g_.At(row % g_.p, q);
        const int64_t at = (row * g_.q + q) * g_.c;
        if (g_.a.mode == Pool2dAttributes::Mode::kMax) {
          Maximum(x, window, out<T>(0) + at, argmax != nullptr ? argmax + at : nullptr);
        } else {
          Average(x, window, out<T>(0) + at);
        }
      }
    });
  }

 private:
  void Maximum(const T* x, const Window& window, T* y, int32_t* argmax) const {
    const auto first = static_cast<int32_t>(window.top * g_.w + window.left);
    std::copy_n(x + first * g_.c, g_.c, y);
    if (argmax != nullptr) std::fill_n(argmax, g_.c, first);
    g_.ForPixels(window, [&](int64_t pixel) {
      const T* from = x + pixel * g_.c;
      for (int64_t c = 0; c < g_.c; ++c) {
        if (!(from[c] > y[c])) continue;
        y[c] = from[c];
        if (argmax != nullptr) argmax[c] = static_cast<int32_t>(pixel);
      }
    });
  }

  void Average(const T* x, const Window& window, T* y) const {
    std::fill_n(y, g_.c, T{0});
    g_.ForPixels(window, [&](int64_t pixel) {
      for (int64_t c = 0; c < g_.c; ++c) y[c] += x[pixel * g_.c + c];
    });
    for (int64_t c = 0; c < g_.c; ++c) y[c] /= static_cast<T>(window.pixels());
  }

  const Geometry g_;
};

template <typename T>
class Pool2dBackward : public ReferenceKernel {
 public:
  Pool2dBackward(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        g_(out_shape(0), in_shape(0), spec.attributes.as<Pool2dAttributes>()) {
    CAROLE_CHECK(g_.a.mode == Pool2dAttributes::Mode::kAverage || IsPresent(spec.inputs, 1),
                 "gradient of a maximum without argmax");
  }

  // Windows may overlap, so threads share the work by images and channels instead of windows.
  void Run(const RunContext&) override {
    const int64_t blocks = DivideUp(g_.c, kChannelGrain);
    ForIndices(threads_, g_.n * blocks, [&](int64_t task) {
      const int64_t begin = task % blocks * kChannelGrain;
      RunChannels(task / blocks, begin, std::min(begin + kChannelGrain, g_.c));
    });
  }

 private:
  void RunChannels(int64_t image, int64_t begin, int64_t end) const {
    T* dx = out<T>(0) + image * g_.h * g_.w * g_.c;
    const int32_t* argmax = in<int32_t>(1);
    for (int64_t i = 0; i < g_.h * g_.w; ++i) {
      std::fill(dx + i * g_.c + begin, dx + i * g_.c + end, T{0});
    }
    for (int64_t i = 0; i < g_.p * g_.q; ++i) {
      const int64_t at = (image * g_.p * g_.q + i) * g_.c;
      const T* dy = in<T>(0) + at;
      if (g_.a.mode == Pool2dAttributes::Mode::kMax) {
        for (int64_t c = begin; c < end; ++c) dx[argmax[at + c] * g_.c + c] += dy[c];
        continue;
      }
      const Window window = g_.At(i / g_.q, i % g_.q);
      const T share = T{1} / static_cast<T>(window.pixels());
      g_.ForPixels(window, [&](int64_t pixel) {
        for (int64_t c = begin; c < end; ++c) dx[pixel * g_.c + c] += dy[c] * share;
      });
    }
  }

  const Geometry g_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kPool2d, .make = MakeTyped<Pool2d>},
    {.kind = op::kPool2dBackward, .make = MakeTyped<Pool2dBackward>},
};

}  // namespace

KernelRows Pool2dKernels() { return kRows; }

}  // namespace carole::reference
