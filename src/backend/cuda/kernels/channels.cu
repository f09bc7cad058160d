// Copies of channels (concat, slice) and of pixels (padding), and images multiplied by one factor
// for each channel.
#include <numeric>

#include "src/backend/cuda/kernels/channel_sums.h"
#include "src/backend/cuda/kernels/copy.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/pad2d.h"
#include "src/backend/ops/scale_channels.h"

namespace carole::cuda {
namespace {

// Calls f.operator()<Element, N>() for copies of elements of this type in packs of N. N divides all
// of `numbers`.
template <typename F>
void WithCopies(DType type, std::initializer_list<int64_t> numbers, F f) {
  int64_t common = 0;
  for (const int64_t number : numbers) common = std::gcd(common, number);
  if (SizeOf(type) == 2) return WithPacksOf<uint16_t>(common, f);
  WithPacksOf<uint32_t>(common, f);
}

// to[pixel, to_begin + c] = from[pixel, from_begin + c]
template <typename Element, int N>
struct CopyColumns {
  static constexpr int kReadsInFlight = 4;
  const Element* from;
  int64_t from_channels, from_begin;
  Element* to;
  int64_t to_channels, to_begin;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ Pack<Element, N> Read(int64_t channel, int64_t pixel) const {
    return ReadPack<N>(from + pixel * from_channels + from_begin + channel);
  }
  __device__ void Write(int64_t channel, int64_t pixel, const Pack<Element, N>& read) const {
    WritePack(to + pixel * to_channels + to_begin + channel, read);
  }
};

class ChannelCopy : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

 protected:
  // Copies `channels` channels of input i, from `from_begin` on, to channels of y from `to_begin`
  // on.
  void Copy(size_t i, int64_t from_begin, int64_t to_begin, int64_t channels) const {
    const int64_t from_channels = in_shape(i)[1], to_channels = out_shape(0)[1];
    WithCopies(ElementType(spec_), {from_channels, to_channels, from_begin, to_begin, channels},
               [&]<typename Element, int N>() {
                 ForMatrix<N>(device_.stream, PixelsOf(in_shape(i)), channels,
                              CopyColumns<Element, N>{in<Element>(i), from_channels, from_begin,
                                                      out<Element>(0), to_channels, to_begin});
               });
  }
};

class Concat : public ChannelCopy {
 public:
  using ChannelCopy::ChannelCopy;

  void Run(const RunContext&) override {
    int64_t begin = 0;
    for (size_t i = 0; i < spec_.inputs.size(); begin += in_shape(i++)[1])
      Copy(i, 0, begin, in_shape(i)[1]);
  }
};

class Slice : public ChannelCopy {
 public:
  using ChannelCopy::ChannelCopy;

  void Run(const RunContext&) override {
    Copy(0, spec_.attributes.as<SliceAttributes>().begin, 0, out_shape(0)[1]);
  }
};

// y[n, p, q, c] = x[n, p - top, q - left, c], or 0
template <typename Element, int N>
struct PadColumns {
  static constexpr int kReadsInFlight = 4;
  const Element* x;
  Element* y;
  int64_t channels, h, w, p, q, top, left;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ Pack<Element, N> Read(int64_t channel, int64_t pixel) const {
    const ImagePixel at(pixel, p, q);
    const int64_t row = at.row - top, column = at.column - left;
    if (row < 0 || row >= h || column < 0 || column >= w) return {};
    return ReadPack<N>(x + ((at.image * h + row) * w + column) * channels + channel);
  }
  __device__ void Write(int64_t channel, int64_t pixel, const Pack<Element, N>& read) const {
    WritePack(y + pixel * channels + channel, read);
  }
};

// Like PadColumns, but y has N channels, more than x. The additional ones are 0.
template <typename Element, int N>
struct PadChannels {
  static constexpr int kReadsInFlight = 4;
  const Element* x;
  Element* y;
  int64_t channels, h, w, p, q, top, left;

  __device__ int64_t Column(int64_t) const { return 0; }
  __device__ Pack<Element, N> Read(int64_t, int64_t pixel) const {
    const ImagePixel at(pixel, p, q);
    const int64_t row = at.row - top, column = at.column - left;
    if (row < 0 || row >= h || column < 0 || column >= w) return {};
    const Element* from = x + ((at.image * h + row) * w + column) * channels;
    Elements<Element, N> values;
    for (int i = 0; i < N; ++i) values.values[i] = i < channels ? from[i] : Element{0};
    return values.ToPack();
  }
  __device__ void Write(int64_t, int64_t pixel, const Pack<Element, N>& read) const {
    WritePack(y + pixel * N, read);
  }
};

class Pad2d : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    Pad(device_.stream, ElementType(spec_), memory_.inputs[0].data, in_shape(0),
        spec_.attributes.as<Pad2dAttributes>().padding, memory_.outputs[0].data, out_shape(0));
  }
};

// y[n,h,w,c] = x[n,h,w,c] * scale[n,c]
template <typename T, int N>
struct MultiplyColumns {
  static constexpr int kReadsInFlight = 2;
  const T *x, *scale;
  T* y;
  int64_t channels, pixels;  // pixels of one image

  __device__ int64_t Column(int64_t channel) const { return channel; }
  struct Packs {
    Pack<T, N> x, scale;
  };
  __device__ Packs Read(int64_t channel, int64_t pixel) const {
    const int64_t image = ImagePixel(pixel, 1, pixels).image;
    return {ReadPack<N>(x + pixel * channels + channel),
            ReadPack<N>(scale + image * channels + channel)};
  }
  __device__ void Write(int64_t channel, int64_t pixel, const Packs& read) const {
    Floats<N> values = ToFloats(read.x);
    const Floats<N> factors = ToFloats(read.scale);
    for (int i = 0; i < N; ++i) values[i] *= factors[i];
    Store<N>(y + pixel * channels + channel, values);
  }
};

template <typename T, int N>
class ScaleChannels : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  void Run(const RunContext&) override { Multiply(in<T>(0), in<T>(1), out<T>(0)); }

 protected:
  void Multiply(const T* x, const T* scale, T* y) const {
    const Shape& shape = in_shape(0);
    ForMatrix<N>(device_.stream, PixelsOf(shape), shape[1],
                 MultiplyColumns<T, N>{x, scale, y, shape[1], shape[2] * shape[3]});
  }
};

// Sums of dy * x over the pixels of each image and channel, for ChannelSums(): a column stands for
// one image and channel, and its rows are the pixels of the image.
template <typename T, int N>
struct DscaleSums {
  static constexpr int kReadsInFlight = 2;
  const T *dy, *x;
  int64_t channels, pixels;  // pixels of one image

  __device__ int64_t Pixels() const { return pixels; }
  __device__ int64_t Column(int64_t column) const {
    return column / channels * pixels * channels + column % channels;
  }
  struct Packs {
    Pack<T, N> dy, x;
  };
  __device__ Packs Read(int64_t first, int64_t pixel) const {
    const int64_t at = first + pixel * channels;
    return {ReadPack<N>(dy + at), ReadPack<N>(x + at)};
  }
  __device__ void Add(int64_t, int64_t, const Packs& read, Floats<N>* sums) const {
    const Floats<N> a = ToFloats(read.dy), b = ToFloats(read.x);
    for (int i = 0; i < N; ++i) sums[0][i] += a[i] * b[i];
  }
};

template <typename T, int N>
class ScaleChannelsBackward : public ScaleChannels<T, N> {
 public:
  ScaleChannelsBackward(const OpSpec& spec, const Device& device)
      : ScaleChannels<T, N>(spec, device),
        channels_(spec.inputs[0].shape[1]),
        pixels_(spec.inputs[0].shape[2] * spec.inputs[0].shape[3]),
        columns_(spec.inputs[0].shape[0] * channels_) {
    if (IsPresent(spec.outputs, 1))
      this->workspace_bytes_ = PartialSumsBytes<1, N>(pixels_, columns_);
  }

  // Computes dscale first, since dx may overwrite dy.
  void Run(const RunContext&) override {
    const T *dy = this->template in<T>(0), *x = this->template in<T>(1);
    CUstream_st* const stream = this->device_.stream;
    if (T* dscale = this->template out<T>(1)) {
      ChannelSums<1, N>(stream, pixels_, columns_, this->memory_.workspace,
                        DscaleSums<T, N>{dy, x, channels_, pixels_}, WriteSum<T>{dscale});
    }
    if (T* dx = this->template out<T>(0)) this->Multiply(dy, this->template in<T>(2), dx);
  }

 private:
  const int64_t channels_, pixels_;  // pixels of one image
  const int64_t columns_;
};

}  // namespace

void Pad(CUstream_st* stream, DType type, const void* x, const Shape& x_shape,
         const Padding& padding, void* y, const Shape& y_shape) {
  const auto pad_channels = [&]<typename Element, int N>() {
    ForMatrix<N>(stream, PixelsOf(y_shape), N,
                 PadChannels<Element, N>{static_cast<const Element*>(x), static_cast<Element*>(y),
                                         x_shape[1], x_shape[2], x_shape[3], y_shape[2], y_shape[3],
                                         padding.top, padding.left});
  };
  if (x_shape[1] != y_shape[1]) {
    if (SizeOf(type) == 4) return pad_channels.operator()<uint32_t, 4>();
    if (y_shape[1] == 4) return pad_channels.operator()<uint16_t, 4>();
    return pad_channels.operator()<uint16_t, 8>();
  }
  WithCopies(type, {y_shape[1]}, [&]<typename Element, int N>() {
    ForMatrix<N>(stream, PixelsOf(y_shape), y_shape[1],
                 PadColumns<Element, N>{static_cast<const Element*>(x), static_cast<Element*>(y),
                                        y_shape[1], x_shape[2], x_shape[3], y_shape[2], y_shape[3],
                                        padding.top, padding.left});
  });
}

namespace {

std::unique_ptr<Kernel> MakeScaleChannels(const OpSpec& spec, const Device& device) {
  return MakePacked<ScaleChannels>(spec, device, spec.inputs[0].shape[1]);
}
std::unique_ptr<Kernel> MakeScaleChannelsBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<ScaleChannelsBackward>(spec, device, spec.inputs[0].shape[1]);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConcat, .make = Make<Concat>},
    {.kind = op::kSlice, .make = Make<Slice>},
    {.kind = op::kPad2d, .make = Make<Pad2d>},
    {.kind = op::kScaleChannels, .make = MakeScaleChannels},
    {.kind = op::kScaleChannelsBackward, .make = MakeScaleChannelsBackward},
};

}  // namespace

KernelRows ChannelsKernels() { return kRows; }

}  // namespace carole::cuda
