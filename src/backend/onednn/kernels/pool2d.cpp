// Pooling, in the layout of the input.
#include "src/backend/ops/pool2d.h"

#include <vector>

#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/onednn/vector/vector.h"

namespace carole::onednn {
namespace {

namespace d = dnnl;

d::algorithm AlgorithmOf(const Pool2dAttributes& a) {
  return a.mode == Pool2dAttributes::Mode::kMax ? d::algorithm::pooling_max
                                                : d::algorithm::pooling_avg_exclude_padding;
}

d::pooling_forward::primitive_desc ForwardDesc(const Md& x, const Md& y, const Pool2dAttributes& a,
                                               bool training) {
  return d::pooling_forward::primitive_desc(
      Engine(), training ? d::prop_kind::forward_training : d::prop_kind::forward_inference,
      AlgorithmOf(a), x, y, {a.stride_h, a.stride_w}, {a.window_h, a.window_w}, {0, 0},
      {a.padding.top, a.padding.left}, {a.padding.bottom, a.padding.right}, UserScratchpad());
}

// The descriptor of an activation `maps` in the same layout as `like`, which is another activation
// or an argmax: blocked or plain. On CPUs without AVX2, plain may be channels first.
Md MapsLike(const Md& like, const TensorSpec& maps) {
  const int64_t block = ChannelBlockOf(like);
  if (block != 0) return InChannelBlocks(maps.shape, DataType(maps.dtype), block);
  return {Dims(maps.shape), DataType(maps.dtype),
          like.get_strides()[1] == 1 ? Tag::nhwc : Tag::nchw};
}

class Pool2d : public PrimitiveKernel {
 public:
  Pool2d(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const bool argmax = IsPresent(spec.outputs, 1);
    const auto pd = ForwardDesc(ToMd(spec.inputs[0]), AnyMd(spec.outputs[0]),
                                spec.attributes.as<Pool2dAttributes>(), argmax);
    SetPrimitive(d::pooling_forward(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_SRC, pd.src_desc());
    Output(0, DNNL_ARG_DST, pd.dst_desc());
    if (argmax) Output(1, DNNL_ARG_WORKSPACE, pd.workspace_desc());
  }
};

class Pool2dBackward : public PrimitiveKernel {
 public:
  Pool2dBackward(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const auto& a = spec.attributes.as<Pool2dAttributes>();
    const bool argmax = spec.inputs[1].present;
    // Backward must use the layout of the forward primitive's workspace, which is the argmax.
    const Md dy = argmax ? MapsLike(ToMd(spec.inputs[1]), spec.inputs[0]) : ToMd(spec.inputs[0]);
    const Md dx = AnyMd(spec.outputs[0]);
    const auto hint = ForwardDesc(MapsLike(dy, spec.outputs[0]), dy, a, true);
    const d::pooling_backward::primitive_desc pd(
        Engine(), AlgorithmOf(a), dx, dy, {a.stride_h, a.stride_w}, {a.window_h, a.window_w},
        {0, 0}, {a.padding.top, a.padding.left}, {a.padding.bottom, a.padding.right}, hint,
        UserScratchpad());
    SetPrimitive(d::pooling_backward(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_DIFF_DST, pd.diff_dst_desc());
    if (argmax) Input(1, DNNL_ARG_WORKSPACE, pd.workspace_desc());
    Output(0, DNNL_ARG_DIFF_SRC, pd.diff_src_desc());
  }
};

// Whether this is the gradient of global average pooling.
bool IsGlobalAverage(const OpSpec& spec, const Cpu& cpu) {
  const auto& a = spec.attributes.as<Pool2dAttributes>();
  const Shape& x = spec.outputs[0].shape;
  return SupportsTypes(spec, cpu) && a.mode == Pool2dAttributes::Mode::kAverage &&
         a.padding == Padding{} && a.window_h == x[2] && a.window_w == x[3];
}

// The layout of dx: blocks of channels if all blocks are full, which suits the convolution before
// the pool, else plain.
Layout LayoutOfDx(const TensorSpec& dx) {
  const int64_t block = ChannelBlock();
  if (block == 0 || dx.shape[1] % block != 0) return Layout::Nhwc();
  return ToLayout(InChannelBlocks(dx.shape, DataType(dx.dtype), block), dx.shape);
}

// The gradient of global average pooling: every pixel of dx is dy divided by the number of pixels.
// oneDNN's own kernel takes a hundred times as long.
template <typename T>
class GlobalAverageBackward : public Kernel {
 public:
  GlobalAverageBackward(const OpSpec& spec, int threads) : threads_(threads) {
    input_layouts_.assign(spec.inputs.size(), Layout::Nhwc());
    output_layouts_ = {LayoutOfDx(spec.outputs[0])};
    dx_ = Planes(spec.outputs[0].shape, output_layouts_[0]);
    quotients_.resize(static_cast<size_t>(dx_.images * dx_.channels));
  }

  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    const T* dy = memory_.inputs[0].as<T>();
    const auto pixels = static_cast<float>(dx_.pixels);
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t plane = 0; plane < dx_.images * dx_.blocks; ++plane) {
      const int64_t first = plane * dx_.lanes;
      T* quotients = quotients_.data() + first;
      for (int64_t c = 0; c < dx_.lanes; ++c) quotients[c] = static_cast<T>(dy[first + c] / pixels);
      Vectors<T>().copy_lanes(quotients, 0, memory_.outputs[0].as<T>() + first * dx_.pixels,
                              {dx_.pixels, dx_.lanes, dx_.lanes});
    }
  }

 private:
  int threads_;
  Planes dx_;
  std::vector<T> quotients_;
  KernelMemory memory_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kPool2d, .make = Make<Pool2d>},
    {.kind = op::kPool2dBackward, .make = Make<Pool2dBackward>},
    {.kind = op::kPool2dBackward,
     .make = MakeTyped<GlobalAverageBackward>,
     .supports = IsGlobalAverage,
     .priority = 1},
};

}  // namespace

KernelRows Pool2dKernels() { return kRows; }

}  // namespace carole::onednn
