// Depthwise convolutions: each input channel is a group of its own, with K/C outputs (the depth
// multiplier). The filter lies (R,S,K) in memory, so neighboring threads read neighboring channels.
#include "src/backend/cuda/convolution/depthwise_strips.h"
#include "src/backend/cuda/kernels/bias.h"
#include "src/backend/cuda/kernels/channel_sums.h"

namespace carole::cuda {
namespace {

constexpr auto kIn = kPosition<Conv2dBackwardDataInputs>;
constexpr auto kOut = kPosition<Conv2dBackwardDataOutputs>;

// The general kernels, which compute one pixel at a time, tap by tap. depthwise_strips.h has faster
// ones for the usual shapes. N > 1 requires a multiplier of 1.
template <typename T, int N>
struct Forward {
  DepthwiseGeometry g;
  const T *x, *filter;
  T* y;
  ForwardEpilogue<T, N> epilogue;

  struct Channels {
    int k, channel;
    Floats<N> bias;
  };
  __device__ Channels Column(int64_t first) const {
    const int k = static_cast<int>(first);
    return {k, k / g.multiplier(), epilogue.Bias(k)};
  }
  __device__ void operator()(const Channels& at, int64_t pixel) const {
    const ImagePixel position(pixel, g.p, g.q);
    const T* image = x + position.image * g.h * g.w * g.c + at.channel;
    Floats<N> sums{};
    for (int i = 0; i < g.r; ++i) {
      const int row = g.InputRow(position.row, i);
      if (row < 0) continue;
      for (int j = 0; j < g.s; ++j) {
        const int column = g.InputColumn(position.column, j);
        if (column < 0) continue;
        AddProducts(sums, Load<N>(image + int64_t{row * g.w + column} * g.c),
                    Load<N>(filter + (i * g.s + j) * g.k + at.k));
      }
    }
    const int64_t element = pixel * g.k + at.k;
    Store<N>(y + element, epilogue(sums, at.bias, element));
  }
};

template <typename T, int N>
struct BackwardData {
  DepthwiseGeometry g;
  const T *dy, *filter;
  T* dx;
  MaskEpilogue<T, N> epilogue;

  __device__ int Column(int64_t channel) const { return static_cast<int>(channel); }
  __device__ void operator()(int channel, int64_t pixel) const {
    const ImagePixel position(pixel, g.h, g.w);
    const int k = channel * g.multiplier();
    const T* image = dy + position.image * g.p * g.q * g.k + k;
    Floats<N> sums{};
    for (int i = 0; i < g.r; ++i) {
      const int row = g.OutputRow(position.row, i);
      if (row < 0) continue;
      for (int j = 0; j < g.s; ++j) {
        const int column = g.OutputColumn(position.column, j);
        if (column < 0) continue;
        const T* from = image + int64_t{row * g.q + column} * g.k;
        const T* weights = filter + (i * g.s + j) * g.k + k;
        for (int m = 0; m < g.multiplier(); ++m)
          AddProducts(sums, Load<N>(from + m), Load<N>(weights + m));
      }
    }
    const int64_t element = pixel * g.c + channel;
    Store<N>(dx + element, epilogue(sums, {}, element));
  }
};

// The gradient of the filter, which lies (R,S,K) in memory. For ChannelSums(): a column stands for
// one tap and one output channel k.
template <typename T, int N>
struct FilterSums {
  static constexpr int kReadsInFlight = 1;
  DepthwiseGeometry g;
  int64_t pixels;
  const T *x, *dy;

  struct Element {
    int k, channel, i, j;
  };
  __device__ int64_t Pixels() const { return pixels; }
  __device__ Element Column(int64_t element) const {
    const int k = static_cast<int>(element % g.k), tap = static_cast<int>(element / g.k);
    return {k, k / g.multiplier(), tap / g.s, tap % g.s};
  }
  __device__ ImagePixel Read(const Element&, int64_t pixel) const {
    return ImagePixel(pixel, g.p, g.q);
  }
  __device__ void Add(const Element& e, int64_t pixel, const ImagePixel& position,
                      Floats<N>* sums) const {
    const int row = g.InputRow(position.row, e.i), column = g.InputColumn(position.column, e.j);
    if (row < 0 || column < 0) return;
    const int64_t from = (position.image * g.h + row) * g.w + column;
    AddProducts(sums[0], Load<N>(x + from * g.c + e.channel), Load<N>(dy + pixel * g.k + e.k));
  }
};

// Writes the sums of kTaps consecutive taps.
template <int kTaps>
struct WriteTaps {
  int64_t k;
  float* dw;
  __device__ void operator()(int64_t element, const double* sums) const {
    for (int t = 0; t < kTaps; ++t)
      dw[(element / k * kTaps + t) * k + element % k] = static_cast<float>(sums[t]);
  }
};

template <typename T, int N>
class Depthwise : public CudaKernel {
 public:
  Depthwise(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        a_(spec.attributes.as<Conv2dAttributes>()),
        g_(in_shape(0), in_shape(1), out_shape(0), a_) {
    input_layouts_[1] = Layout::Filter();
  }

  void Run(const RunContext&) override {
    const DepthwiseGeometry g(g_);
    const T *x = in<T>(0), *filter = in<T>(1);
    T* y = out<T>(0);
    const ForwardEpilogue<T, N> epilogue{in<float>(2), in<T>(3), a_.relu};
    const bool done = WithStrips<N>(g_, [&]<int kSize, int kStride>() {
      const Strips<T, N, kSize, kStride, 1, ForwardEpilogue<T, N>> strips{.channels = g.c,
                                                                          .source_h = g.h,
                                                                          .source_w = g.w,
                                                                          .h = g.p,
                                                                          .w = g.q,
                                                                          .before_h = g.top,
                                                                          .before_w = g.left,
                                                                          .source = x,
                                                                          .filter = filter,
                                                                          .next_tap = g.c,
                                                                          .result = y,
                                                                          .epilogue = epilogue};
      ForMatrix<N>(device_.stream, g_.rows() * strips.strips(), g_.k, strips);
    });
    if (done) return;
    ForMatrix<N>(device_.stream, g_.pixels(), g_.k, Forward<T, N>{g, x, filter, y, epilogue});
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
        g_(out_shape(0), in_shape(1), in_shape(0), spec.attributes.as<Conv2dAttributes>()) {
    input_layouts_[kIn.w] = Layout::Filter();
    if (IsPresent(spec.outputs, kOut.db))
      workspace_bytes_ = ColumnSumsBytes(ElementType(spec), pixels(), g_.c);
  }

  void Run(const RunContext&) override {
    const DepthwiseGeometry g(g_);
    const T *dy = in<T>(kIn.dy), *filter = in<T>(kIn.w);
    const MaskEpilogue<T, N> masked{in<T>(kIn.relu_y)};
    T* dx = out<T>(kOut.dx);
    const bool done = WithStrips<N>(g_, [&]<int kSize, int kStride>() {
      const Strips<T, N, kSize, 1, kStride, MaskEpilogue<T, N>> strips{
          .channels = g.c,
          .source_h = g.p,
          .source_w = g.q,
          .h = g.h,
          .w = g.w,
          .before_h = kSize - 1 - g.top,
          .before_w = kSize - 1 - g.left,
          .source = dy,
          .filter = filter + (kSize * kSize - 1) * g.c,
          .next_tap = -g.c,
          .result = dx,
          .epilogue = masked};
      ForMatrix<N>(device_.stream, g_.n * g_.h * strips.strips(), g_.c, strips);
    });
    if (!done) {
      ForMatrix<N>(device_.stream, pixels(), g_.c, BackwardData<T, N>{g, dy, filter, dx, masked});
    }
    if (float* db = out<float>(kOut.db)) {
      ColumnSums(device_.stream, ElementType(spec_), dx, pixels(), g_.c, db, memory_.workspace);
    }
  }

 private:
  int64_t pixels() const { return g_.n * g_.h * g_.w; }

  const Conv2dGeometry g_;
};

template <typename T, int N>
class DepthwiseBackwardFilter : public CudaKernel {
 public:
  DepthwiseBackwardFilter(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        g_(in_shape(0), out_shape(0), in_shape(1), spec.attributes.as<Conv2dAttributes>()) {
    output_layouts_[0] = Layout::Filter();
    WithSums([&]<int kTaps, int kPacked>(int64_t pixels, int64_t columns, const auto&) {
      workspace_bytes_ = PartialSumsBytes<kTaps, kPacked>(pixels, columns);
    });
    if (IsPresent(spec.outputs, 1)) {
      const size_t bias = ColumnSumsBytes(ElementType(spec), g_.pixels(), g_.k);
      workspace_bytes_ = workspace_bytes_ > bias ? workspace_bytes_ : bias;
    }
  }

  void Run(const RunContext&) override {
    WithSums([&]<int kTaps, int kPacked>(int64_t pixels, int64_t columns, auto sums) {
      sums.x = in<T>(0);
      sums.dy = in<T>(1);
      ChannelSums<kTaps, kPacked>(device_.stream, pixels, columns, memory_.workspace, sums,
                                  WriteTaps<kTaps>{g_.k, out<float>(0)});
    });
    if (float* db = out<float>(1)) {
      ColumnSums(device_.stream, ElementType(spec_), in<T>(1), g_.pixels(), g_.k, db,
                 memory_.workspace);
    }
  }

 private:
  // Calls f.operator()<kTaps, kPacked>(pixels, columns, sums) with the arguments of ChannelSums().
  // The pointers in `sums` are not set yet.
  template <typename F>
  void WithSums(F f) const {
    constexpr int kPacked = N < kFilterPack ? N : kFilterPack;
    const bool done = WithStrips<N>(g_, [&]<int kSize, int kStride>() {
      constexpr int kRows = kSize == 3 ? 3 : 1;  // for a 5x5 filter, 25 sums are too many registers
      const FilterStrips<T, kPacked, kSize, kRows, kStride> sums{DepthwiseGeometry(g_), g_.n};
      f.template operator()<kRows * kSize, kPacked>(sums.Pixels(), kSize / kRows * g_.k, sums);
    });
    if (done) return;
    f.template operator()<1, N>(g_.pixels(), g_.taps() * g_.k,
                                FilterSums<T, N>{DepthwiseGeometry(g_), g_.pixels()});
  }

  // Channels of a pack of FilterStrips. With packs of kPack channels, the sums would not fit into
  // registers.
  static constexpr int kFilterPack = kPack<T> / 2;

  const Conv2dGeometry g_;
};

// Returns the number of which the size of a thread's pack of channels must be a divisor.
int64_t Neighbors(const Shape& x, const Shape& y) { return x[1] == y[1] ? x[1] : 1; }

std::unique_ptr<Kernel> MakeDepthwise(const OpSpec& spec, const Device& device) {
  return MakePacked<Depthwise>(spec, device,
                               Neighbors(spec.inputs[0].shape, spec.outputs[0].shape));
}
std::unique_ptr<Kernel> MakeDepthwiseBackwardData(const OpSpec& spec, const Device& device) {
  return MakePacked<DepthwiseBackwardData>(spec, device,
                                           Neighbors(spec.outputs[0].shape, spec.inputs[0].shape));
}
std::unique_ptr<Kernel> MakeDepthwiseBackwardFilter(const OpSpec& spec, const Device& device) {
  return MakePacked<DepthwiseBackwardFilter>(spec, device,
                                             Neighbors(spec.inputs[0].shape, spec.inputs[1].shape));
}

bool IsDepthwise(const OpSpec& spec, const Shape& x) {
  const int64_t groups = spec.attributes.as<Conv2dAttributes>().groups;
  return groups == x[1] && groups > 1;
}
bool SupportsForward(const OpSpec& spec, const Device& device) {
  return SupportsTypes(spec, device) && IsDepthwise(spec, spec.inputs[0].shape);
}
bool SupportsBackwardData(const OpSpec& spec, const Device& device) {
  return SupportsTypes(spec, device) && IsDepthwise(spec, spec.outputs[0].shape);
}
bool SupportsBackwardFilter(const OpSpec& spec, const Device& device) {
  return SupportsForward(spec, device) && !HasReluYInput(spec);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2d, .make = MakeDepthwise, .supports = SupportsForward, .priority = 1},
    {.kind = op::kConv2dBackwardData,
     .make = MakeDepthwiseBackwardData,
     .supports = SupportsBackwardData,
     .priority = 1},
    {.kind = op::kConv2dBackwardFilter,
     .make = MakeDepthwiseBackwardFilter,
     .supports = SupportsBackwardFilter,
     .priority = 1},
};

}  // namespace

KernelRows DepthwiseKernels() { return kRows; }

}  // namespace carole::cuda
