// Depthwise convolutions: one group for each input channel, and K/C outputs (the multiplier) for
// each. The filter lies (R,S,K) in memory, so neighbouring threads read neighbouring channels.
#include "src/backend/conv2d_geometry.h"
#include "src/backend/cuda/bias.h"
#include "src/backend/cuda/channel_sums.h"
#include "src/backend/cuda/element.h"

namespace carole::cuda {
namespace {

// The index of x under a tap for pixel (image, row, column) of y and input channel, or -1.
__device__ int64_t Input(const Conv2dGeometry& g, int64_t image, int64_t row, int64_t column,
                         int64_t i, int64_t j, int64_t channel) {
  const int64_t y = g.InputRow(row, i), x = g.InputColumn(column, j);
  if (y < 0 || y >= g.h || x < 0 || x >= g.w) return -1;
  return ((image * g.h + y) * g.w + x) * g.c + channel;
}

// sums += a * b, N neighbours each.
template <typename T, int N>
__device__ void AddProducts(Floats<N>& sums, const T* a, const T* b) {
  const Floats<N> left = Load<N>(a), right = Load<N>(b);
  for (int n = 0; n < N; ++n) sums[n] += left[n] * right[n];
}

// With N > 1 each input channel has one output (the multiplier is 1).
template <typename T, int N>
struct Forward {
  Conv2dGeometry g;
  const T *x, *filter;
  const float* bias;
  T* y;
  bool relu;

  __device__ int64_t Column(int64_t k) const { return k; }
  __device__ void operator()(int64_t k, int64_t pixel) const {
    const int64_t image = pixel / (g.p * g.q), row = pixel / g.q % g.p, column = pixel % g.q;
    const int64_t channel = k / (g.k / g.c);
    Floats<N> sums{};
    for (int64_t i = 0; i < g.r; ++i) {
      for (int64_t j = 0; j < g.s; ++j) {
        const int64_t from = Input(g, image, row, column, i, j, channel);
        if (from >= 0) AddProducts(sums, x + from, filter + (i * g.s + j) * g.k + k);
      }
    }
    for (int n = 0; n < N; ++n) {
      const float value = sums[n] + (bias == nullptr ? 0 : bias[k + n]);
      sums[n] = relu && value < 0 ? 0 : value;  // NaN stays NaN
    }
    Store<N>(y + pixel * g.k + k, sums);
  }
};

template <typename T, int N>
struct BackwardData {
  Conv2dGeometry g;
  const T *dy, *filter;
  T* dx;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const int64_t image = pixel / (g.h * g.w), y = pixel / g.w % g.h, x = pixel % g.w;
    const int64_t multiplier = g.k / g.c;
    Floats<N> sums{};
    for (int64_t i = 0; i < g.r; ++i) {
      const int64_t row = g.OutputRow(y, i);
      if (row < 0) continue;
      for (int64_t j = 0; j < g.s; ++j) {
        const int64_t column = g.OutputColumn(x, j);
        if (column < 0) continue;
        const T* from = dy + ((image * g.p + row) * g.q + column) * g.k + channel * multiplier;
        const T* weights = filter + (i * g.s + j) * g.k + channel * multiplier;
        for (int64_t m = 0; m < multiplier; ++m) AddProducts(sums, from + m, weights + m);
      }
    }
    Store<N>(dx + pixel * g.c + channel, sums);
  }
};

// A column of sums for each element of the filter, as it lies in memory: (tap, k).
template <typename T, int N>
struct FilterSums {
  Conv2dGeometry g;
  const T *x, *dy;

  struct Element {
    int64_t k, channel, i, j;
  };
  __device__ int64_t Pixels() const { return g.pixels(); }
  __device__ Element Column(int64_t element) const {
    const int64_t k = element % g.k, tap = element / g.k;
    return {k, k / (g.k / g.c), tap / g.s, tap % g.s};
  }
  __device__ void Add(const Element& e, int64_t pixel, Floats<N>* sums) const {
    const int64_t image = pixel / (g.p * g.q), row = pixel / g.q % g.p, column = pixel % g.q;
    const int64_t from = Input(g, image, row, column, e.i, e.j, e.channel);
    if (from >= 0) AddProducts(sums[0], x + from, dy + pixel * g.k + e.k);
  }
};

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
    ForMatrix<N>(device_.stream, g_.pixels(), g_.k,
                 Forward<T, N>{g_, in<T>(0), in<T>(1), in<float>(2), out<T>(0), a_.relu});
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
    ForMatrix<N>(device_.stream, g_.n * g_.h * g_.w, g_.c,
                 BackwardData<T, N>{g_, in<T>(0), in<T>(1), out<T>(0)});
  }

 private:
  const Conv2dGeometry g_;
};

template <typename T, int N>
class DepthwiseBackwardFilter : public CudaKernel {
 public:
  DepthwiseBackwardFilter(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        g_(in_shape(0), out_shape(0), in_shape(1), spec.attributes_as<Conv2dAttributes>()),
        elements_(g_.taps() * g_.k) {
    output_layouts_[0] = Layout::Filter();
    workspace_bytes_ = PartialSumsBytes<1, N>(g_.pixels(), elements_);
    if (IsPresent(spec.outputs, 1)) {
      const size_t bias = ColumnSumsBytes(ElementType(spec), g_.pixels(), g_.k);
      workspace_bytes_ = workspace_bytes_ > bias ? workspace_bytes_ : bias;
    }
  }

  void Run(const RunContext&) override {
    const T* dy = in<T>(1);
    const PartialSums sums =
        ChannelSums<1, N>(device_.stream, g_.pixels(), elements_, memory_.workspace,
                          FilterSums<T, N>{g_, in<T>(0), dy});
    WriteTotals(device_.stream, sums, out<float>(0));
    if (float* db = out<float>(1)) {
      ColumnSums(device_.stream, ElementType(spec_), dy, g_.pixels(), g_.k, db, memory_.workspace);
    }
  }

 private:
  const Conv2dGeometry g_;
  const int64_t elements_;
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
