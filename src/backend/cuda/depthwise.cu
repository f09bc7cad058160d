// Depthwise convolutions: one group for each input channel, and K/C outputs (the multiplier) for
// each. The filter lies (R,S,K) in memory, so neighbouring threads read neighbouring channels.
#include "src/backend/conv2d_geometry.h"
#include "src/backend/cuda/bias.h"
#include "src/backend/cuda/channel_sums.h"
#include "src/backend/cuda/element.h"

namespace carole::cuda {
namespace {

// A Conv2dGeometry in 32 bits where numbers are small, since all of it is calculated with for every
// tap. kSize: R = S = kSize, which unrolls the loops over taps; 0: any.
template <int kSize>
struct Window {
  int h, w, p, q, r, s, stride_h, stride_w, top, left, dilation;
  int64_t c, k;

  explicit Window(const Conv2dGeometry& g)
      : h(Narrow(g.h)),
        w(Narrow(g.w)),
        p(Narrow(g.p)),
        q(Narrow(g.q)),
        r(Narrow(g.r)),
        s(Narrow(g.s)),
        stride_h(Narrow(g.a.stride_h)),
        stride_w(Narrow(g.a.stride_w)),
        top(Narrow(g.a.padding.top)),
        left(Narrow(g.a.padding.left)),
        dilation(Narrow(g.a.dilation)),
        c(g.c),
        k(g.k) {}

  __device__ int rows() const { return kSize > 0 ? kSize : r; }
  __device__ int columns() const { return kSize > 0 ? kSize : s; }
  __device__ int64_t multiplier() const { return k == c ? 1 : k / c; }
  // Which row or column of x lies under a tap, or -1.
  __device__ int InputRow(int row, int i) const {
    return Inside(row * stride_h + i * dilation - top, h);
  }
  __device__ int InputColumn(int column, int j) const {
    return Inside(column * stride_w + j * dilation - left, w);
  }
  // Which row or column of y reads that of x through a tap, or -1.
  __device__ int OutputRow(int y, int i) const {
    return Output(y + top - i * dilation, stride_h, p);
  }
  __device__ int OutputColumn(int x, int j) const {
    return Output(x + left - j * dilation, stride_w, q);
  }

 private:
  static int Narrow(int64_t number) {
    CAROLE_CHECK(number >= INT16_MIN && number <= INT16_MAX, "depthwise convolution: {}", number);
    return static_cast<int>(number);
  }
  __device__ static int Inside(int place, int size) {
    return place >= 0 && place < size ? place : -1;
  }
  __device__ static int Output(int shifted, int stride, int size) {
    if (stride == 1) return Inside(shifted, size);
    const int place = shifted / stride;
    return shifted >= 0 && place * stride == shifted ? Inside(place, size) : -1;
  }
};

// sums += a * b, N neighbours each.
template <typename T, int N>
__device__ void AddProducts(Floats<N>& sums, const Pack<T, N>& a, const Pack<T, N>& b) {
  const Floats<N> left = ToFloats(a), right = ToFloats(b);
  for (int n = 0; n < N; ++n) sums[n] += left[n] * right[n];
}

// With N > 1 each input channel has one output (the multiplier is 1).
template <typename T, int N, int kSize>
struct Forward {
  Window<kSize> g;
  const T *x, *filter;
  const float* bias;
  const T* residual;
  T* y;
  bool relu;

  struct Channels {
    int64_t k, channel;
  };
  __device__ Channels Column(int64_t k) const { return {k, k / g.multiplier()}; }
  __device__ void operator()(const Channels& at, int64_t pixel) const {
    const ImagePixel place(pixel, g.p, g.q);
    const T* image = x + place.image * g.h * g.w * g.c + at.channel;
    Floats<N> sums{};
    for (int i = 0; i < g.rows(); ++i) {
      const int row = g.InputRow(place.row, i);
      if (row < 0) continue;
      for (int j = 0; j < g.columns(); ++j) {
        const int column = g.InputColumn(place.column, j);
        if (column < 0) continue;
        AddProducts(sums, ReadPack<N>(image + (row * g.w + column) * g.c),
                    ReadPack<N>(filter + (i * g.columns() + j) * g.k + at.k));
      }
    }
    const int64_t element = pixel * g.k + at.k;
    const Floats<N> residuals =
        residual == nullptr ? Floats<N>{} : ToFloats(ReadPack<N>(residual + element));
    for (int n = 0; n < N; ++n) {
      const float value = sums[n] + (bias == nullptr ? 0 : bias[at.k + n]) + residuals[n];
      sums[n] = relu && value < 0 ? 0 : value;  // NaN stays NaN
    }
    Store<N>(y + element, sums);
  }
};

template <typename T, int N, int kSize>
struct BackwardData {
  Window<kSize> g;
  const T *dy, *filter;
  T* dx;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const ImagePixel place(pixel, g.h, g.w);
    const int64_t k = channel * g.multiplier();
    const T* image = dy + place.image * g.p * g.q * g.k + k;
    Floats<N> sums{};
    for (int i = 0; i < g.rows(); ++i) {
      const int row = g.OutputRow(place.row, i);
      if (row < 0) continue;
      for (int j = 0; j < g.columns(); ++j) {
        const int column = g.OutputColumn(place.column, j);
        if (column < 0) continue;
        const T* from = image + (row * g.q + column) * g.k;
        const T* weights = filter + (i * g.columns() + j) * g.k + k;
        for (int64_t m = 0; m < g.multiplier(); ++m)
          AddProducts(sums, ReadPack<N>(from + m), ReadPack<N>(weights + m));
      }
    }
    Store<N>(dx + pixel * g.c + channel, sums);
  }
};

// The gradient of the filter, as it lies in memory (R,S,K), a column of sums for each row of taps
// and each k: the kTaps taps of the row are its values, so that dy is read once for all of them.
// kTaps = 1: for each tap.
template <typename T, int N, int kTaps>
struct FilterSums {
  static constexpr int kAhead = 1;  // reads enough at once
  Window<0> g;
  int64_t pixels;
  const T *x, *dy;

  struct Element {
    int64_t k, channel;
    int i, j;  // of the first tap
  };
  struct Packs {
    Pack<T, N> dy, x[kTaps];
    unsigned inside;  // bits of those taps that have a pixel under them
  };
  __device__ int64_t Pixels() const { return pixels; }
  __device__ Element Column(int64_t element) const {
    const int64_t k = element % g.k;
    const int tap = static_cast<int>(element / g.k) * kTaps;
    return {k, k / g.multiplier(), tap / g.s, tap % g.s};
  }
  __device__ Packs Read(const Element& e, int64_t pixel) const {
    const ImagePixel place(pixel, g.p, g.q);
    Packs packs{};
    const int row = g.InputRow(place.row, e.i);
    if (row < 0) return packs;
    packs.dy = ReadPack<N>(dy + pixel * g.k + e.k);
    const T* from = x + (place.image * g.h + row) * g.w * g.c + e.channel;
    for (int t = 0; t < kTaps; ++t) {
      const int column = g.InputColumn(place.column, e.j + t);
      if (column < 0) continue;
      packs.x[t] = ReadPack<N>(from + column * g.c);
      packs.inside |= 1U << t;
    }
    return packs;
  }
  __device__ void Add(const Element&, int64_t, const Packs& read, Floats<N>* sums) const {
    for (int t = 0; t < kTaps; ++t) {
      if ((read.inside >> t & 1) != 0) AddProducts(sums[t], read.x[t], read.dy);
    }
  }
};

template <int kTaps>
struct WriteTaps {
  int64_t k;
  float* dw;
  __device__ void operator()(int64_t element, const double* sums) const {
    for (int t = 0; t < kTaps; ++t)
      dw[(element / k * kTaps + t) * k + element % k] = static_cast<float>(sums[t]);
  }
};

// Calls f.operator()<kSize>() for filters of this size, 0 where there is no code for it alone.
template <typename F>
void WithSize(const Conv2dGeometry& g, F f) {
  if (g.r == 3 && g.s == 3) return f.template operator()<3>();
  if (g.r == 5 && g.s == 5) return f.template operator()<5>();
  f.template operator()<0>();
}

template <typename T, int N>
class Depthwise : public CudaKernel {
 public:
  Depthwise(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        a_(spec.attributes_as<Conv2dAttributes>()),
        g_(in_shape(0), in_shape(1), out_shape(0), a_) {
    input_layouts_[1] = Layout::Filter();
  }

  void Run(const RunContext&) override {
    WithSize(g_, [&]<int kSize>() {
      ForMatrix<N>(device_.stream, g_.pixels(), g_.k,
                   Forward<T, N, kSize>{Window<kSize>(g_), in<T>(0), in<T>(1), in<float>(2),
                                        in<T>(3), out<T>(0), a_.relu});
    });
  }

 private:
  const Conv2dAttributes a_;
  const Conv2dGeometry g_;
};

template <typename T, int N>
class DepthwiseBackwardData : public CudaKernel {
 public:
  DepthwiseBackwardData(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        g_(out_shape(0), in_shape(1), in_shape(0), spec.attributes_as<Conv2dAttributes>()) {
    input_layouts_[1] = Layout::Filter();
  }

  void Run(const RunContext&) override {
    WithSize(g_, [&]<int kSize>() {
      ForMatrix<N>(device_.stream, g_.n * g_.h * g_.w, g_.c,
                   BackwardData<T, N, kSize>{Window<kSize>(g_), in<T>(0), in<T>(1), out<T>(0)});
    });
  }

 private:
  const Conv2dGeometry g_;
};

template <typename T, int N>
class DepthwiseBackwardFilter : public CudaKernel {
 public:
  DepthwiseBackwardFilter(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        g_(in_shape(0), out_shape(0), in_shape(1), spec.attributes_as<Conv2dAttributes>()) {
    output_layouts_[0] = Layout::Filter();
    WithSize(g_, [&]<int kSize>() {
      workspace_bytes_ = PartialSumsBytes<Taps(kSize), N>(g_.pixels(), Elements(Taps(kSize)));
    });
    if (IsPresent(spec.outputs, 1)) {
      const size_t bias = ColumnSumsBytes(ElementType(spec), g_.pixels(), g_.k);
      workspace_bytes_ = workspace_bytes_ > bias ? workspace_bytes_ : bias;
    }
  }

  void Run(const RunContext&) override {
    const T* dy = in<T>(1);
    WithSize(g_, [&]<int kSize>() {
      constexpr int kTaps = Taps(kSize);
      ChannelSums<kTaps, N>(device_.stream, g_.pixels(), Elements(kTaps), memory_.workspace,
                            FilterSums<T, N, kTaps>{Window<0>(g_), g_.pixels(), in<T>(0), dy},
                            WriteTaps<kTaps>{g_.k, out<float>(0)});
    });
    if (float* db = out<float>(1)) {
      ColumnSums(device_.stream, ElementType(spec_), dy, g_.pixels(), g_.k, db, memory_.workspace);
    }
  }

 private:
  static constexpr int Taps(int size) { return size > 0 ? size : 1; }
  int64_t Elements(int taps) const { return g_.taps() / taps * g_.k; }

  const Conv2dGeometry g_;
};

// Channels that a thread may take at once are a whole number of these.
int64_t Neighbours(const Shape& x, const Shape& y) { return x[1] == y[1] ? x[1] : 1; }

}  // namespace

std::unique_ptr<Kernel> MakeDepthwise(const OpSpec& spec, const Device& device) {
  return MakePacked<Depthwise>(spec, device,
                               Neighbours(spec.inputs[0].shape, spec.outputs[0].shape));
}
std::unique_ptr<Kernel> MakeDepthwiseBackwardData(const OpSpec& spec, const Device& device) {
  return MakePacked<DepthwiseBackwardData>(spec, device,
                                           Neighbours(spec.outputs[0].shape, spec.inputs[0].shape));
}
std::unique_ptr<Kernel> MakeDepthwiseBackwardFilter(const OpSpec& spec, const Device& device) {
  return MakePacked<DepthwiseBackwardFilter>(
      spec, device, Neighbours(spec.inputs[0].shape, spec.inputs[1].shape));
}

}  // namespace carole::cuda
