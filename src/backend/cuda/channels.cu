// Copies of channels and of pixels, and images times one factor for each channel.
#include "src/backend/cuda/channel_sums.h"
#include "src/backend/cuda/cuda.h"
#include "src/backend/cuda/pad.h"

namespace carole::cuda {
namespace {

int64_t PixelsOf(const Shape& x) { return x.size() / x[1]; }

// to[pixel, to_begin + c] = from[pixel, from_begin + c]
struct CopyColumns {
  const float* from;
  int64_t from_channels, from_begin;
  float* to;
  int64_t to_channels, to_begin;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    to[pixel * to_channels + to_begin + channel] =
        from[pixel * from_channels + from_begin + channel];
  }
};

class Concat : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    int64_t begin = 0;
    for (size_t i = 0; i < spec_.inputs.size(); ++i) {
      const int64_t channels = in_shape(i)[1];
      ForMatrix(device_.stream, PixelsOf(in_shape(i)), channels,
                CopyColumns{in<float>(i), channels, 0, out<float>(0), out_shape(0)[1], begin});
      begin += channels;
    }
  }
};

class Slice : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    const int64_t channels = out_shape(0)[1];
    ForMatrix(
        device_.stream, PixelsOf(in_shape(0)), channels,
        CopyColumns{in<float>(0), in_shape(0)[1], spec_.attributes_as<SliceAttributes>().begin,
                    out<float>(0), channels, 0});
  }
};

// y[n, p, q, c] = x[n, p - top, q - left, c], or 0
struct PadColumns {
  const float* x;
  float* y;
  int64_t channels, h, w, p, q, top, left;

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const int64_t row = pixel / q % p - top, column = pixel % q - left;
    const bool inside = row >= 0 && row < h && column >= 0 && column < w;
    const int64_t from = (pixel / (p * q) * h + row) * w + column;
    y[pixel * channels + channel] = inside ? x[from * channels + channel] : 0;
  }
};

class Pad2d : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    Pad(device_.stream, in<float>(0), in_shape(0), spec_.attributes_as<Pad2dAttributes>().padding,
        out<float>(0), out_shape(0));
  }
};

// y = x * scale of its image and channel
struct MultiplyColumns {
  const float *x, *scale;
  float* y;
  int64_t channels, pixels;  // of an image

  __device__ int64_t Column(int64_t channel) const { return channel; }
  __device__ void operator()(int64_t channel, int64_t pixel) const {
    const int64_t at = pixel * channels + channel;
    y[at] = x[at] * scale[pixel / pixels * channels + channel];
  }
};

class ScaleChannels : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  void Run(const RunContext&) override { Multiply(in<float>(0), in<float>(1), out<float>(0)); }

 protected:
  void Multiply(const float* x, const float* scale, float* y) const {
    const Shape& shape = in_shape(0);
    ForMatrix(device_.stream, PixelsOf(shape), shape[1],
              MultiplyColumns{x, scale, y, shape[1], shape[2] * shape[3]});
  }
};

// One image after the other lies along the channels: column (image, channel), rows its pixels.
struct DscaleSums {
  const float *dy, *x;
  int64_t channels, pixels;  // of an image

  __device__ int64_t Pixels() const { return pixels; }
  __device__ int64_t Column(int64_t column) const {
    return column / channels * pixels * channels + column % channels;
  }
  __device__ void Add(int64_t first, int64_t pixel, float* sums) const {
    sums[0] += dy[first + pixel * channels] * x[first + pixel * channels];
  }
};

class ScaleChannelsBackward : public ScaleChannels {
 public:
  ScaleChannelsBackward(const OpSpec& spec, const Device& device)
      : ScaleChannels(spec, device), columns_(in_shape(0)[0] * in_shape(0)[1]) {
    if (IsPresent(spec.outputs, 1)) workspace_bytes_ = PartialSumsBytes<1>(pixels(), columns_);
  }

  // dscale first: dx may lie over dy.
  void Run(const RunContext&) override {
    if (float* dscale = out<float>(1)) {
      const PartialSums sums =
          ChannelSums<1>(device_.stream, pixels(), columns_, memory_.workspace,
                         DscaleSums{in<float>(0), in<float>(1), in_shape(0)[1], pixels()});
      WriteTotals(device_.stream, sums, dscale);
    }
    if (float* dx = out<float>(0)) Multiply(in<float>(0), in<float>(2), dx);
  }

 private:
  int64_t pixels() const { return in_shape(0)[2] * in_shape(0)[3]; }

  const int64_t columns_;
};

// One loop for each dimension of a copy between two layouts.
struct Loops {
  static constexpr int kDepth = Shape::kMaxRank;
  struct Loop {
    int64_t size = 1, from = 0, to = 0;
  };
  Loop loops[kDepth];

  Loops(const Shape& shape, const Shape& from, const Shape& to) {
    for (int i = 0; i < shape.rank(); ++i)
      loops[kDepth - shape.rank() + i] = {shape[i], from[i], to[i]};
  }
  // Copies element number i.
  template <typename Element>
  __device__ void Copy(int64_t i, const Element* from, Element* to) const {
    for (int d = kDepth - 1; d >= 0; --d) {
      const int64_t index = i % loops[d].size;
      i /= loops[d].size;
      from += index * loops[d].from;
      to += index * loops[d].to;
    }
    *to = *from;
  }
};

// Element is an unsigned integer as wide as the tensors' elements.
template <typename Element>
class Reorder : public CudaKernel {
 public:
  Reorder(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        loops_(in_shape(0), PlainStrides(in_shape(0), spec.inputs[0].layout),
               PlainStrides(in_shape(0), spec.outputs[0].layout)) {
    input_layouts_ = {spec.inputs[0].layout};
    output_layouts_ = {spec.outputs[0].layout};
  }

  void Run(const RunContext&) override {
    const Element* from = in<Element>(0);
    Element* to = out<Element>(0);
    const Loops loops = loops_;
    ForEach(device_.stream, in_shape(0).size(),
            [=] __device__(int64_t i) { loops.Copy(i, from, to); });
  }

 private:
  Loops loops_;
};

}  // namespace

void Pad(CUstream_st* stream, const float* x, const Shape& x_shape, const Padding& padding,
         float* y, const Shape& y_shape) {
  ForMatrix(stream, PixelsOf(y_shape), y_shape[1],
            PadColumns{x, y, y_shape[1], x_shape[2], x_shape[3], y_shape[2], y_shape[3],
                       padding.top, padding.left});
}

std::unique_ptr<Kernel> MakeChannelCopy(const OpSpec& spec, const Device& device) {
  if (spec.kind == OpKind::kConcat) return std::make_unique<Concat>(spec, device);
  return std::make_unique<Slice>(spec, device);
}

std::unique_ptr<Kernel> MakePad2d(const OpSpec& spec, const Device& device) {
  return std::make_unique<Pad2d>(spec, device);
}

std::unique_ptr<Kernel> MakeScaleChannels(const OpSpec& spec, const Device& device) {
  if (spec.kind == OpKind::kScaleChannels) return std::make_unique<ScaleChannels>(spec, device);
  return std::make_unique<ScaleChannelsBackward>(spec, device);
}

std::unique_ptr<Kernel> MakeReorder(const OpSpec& spec, const Device& device) {
  switch (SizeOf(spec.inputs[0].dtype)) {
    case 8:
      return std::make_unique<Reorder<uint64_t>>(spec, device);
    case 4:
      return std::make_unique<Reorder<uint32_t>>(spec, device);
    case 2:
      return std::make_unique<Reorder<uint16_t>>(spec, device);
    default:
      return std::make_unique<Reorder<uint8_t>>(spec, device);
  }
}

}  // namespace carole::cuda
