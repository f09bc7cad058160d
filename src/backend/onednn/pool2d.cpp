// Pooling in the layout that its input has.
#include "src/backend/onednn/onednn.h"

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

// The gradient of a pool over the whole map is one pixel, plain and in blocks of channels at once
// (ToLayout). Seen as blocks, it gives dx in blocks, as the convolution below has it; seen as
// plain, dx would have to be reordered.
Md GradientMd(const TensorSpec& dy) {
  const int64_t block = HasIsa(d::cpu_isa::avx512_core) ? 16 : HasIsa(d::cpu_isa::avx2) ? 8 : 0;
  const bool pixel = dy.shape[2] == 1 && dy.shape[3] == 1 && dy.layout.is_plain();
  if (!pixel || block == 0 || dy.shape[1] % block != 0) return ToMd(dy);
  return Md(Dims(dy.shape), DataType(dy.dtype), block == 16 ? Tag::nChw16c : Tag::nChw8c);
}

class Pool2d : public PrimitiveKernel {
 public:
  Pool2d(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const bool argmax = IsPresent(spec.outputs, 1);
    const auto pd = ForwardDesc(ToMd(spec.inputs[0]), AnyMd(spec.outputs[0]),
                                spec.attributes_as<Pool2dAttributes>(), argmax);
    SetPrimitive(d::pooling_forward(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_SRC, pd.src_desc());
    Output(0, DNNL_ARG_DST, pd.dst_desc());
    if (argmax) Output(1, DNNL_ARG_WORKSPACE, pd.workspace_desc());
  }
};

class Pool2dBackward : public PrimitiveKernel {
 public:
  Pool2dBackward(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const auto& a = spec.attributes_as<Pool2dAttributes>();
    const bool argmax = spec.inputs[1].present;
    const auto type = DataType(spec.inputs[0].dtype);
    // The workspace of the forward primitive fixes the layout that backward must use.
    Md dy = GradientMd(spec.inputs[0]);
    if (argmax) {
      const Md workspace = ToMd(spec.inputs[1]);
      dy = workspace.get_inner_nblks() == 0
               ? Md(Dims(spec.inputs[0].shape), type, Tag::nhwc)
               : Md(Dims(spec.inputs[0].shape), type,
                    workspace.get_inner_blks()[0] == 16 ? Tag::nChw16c : Tag::nChw8c);
    }
    const Md dx = AnyMd(spec.outputs[0]);
    const auto hint = ForwardDesc(Md(Dims(spec.outputs[0].shape), type,
                                     dy.get_inner_nblks() == 0      ? Tag::nhwc
                                     : dy.get_inner_blks()[0] == 16 ? Tag::nChw16c
                                                                    : Tag::nChw8c),
                                  dy, a, true);
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

}  // namespace

std::unique_ptr<Kernel> MakePool2d(const OpSpec& spec, int threads) {
  return std::make_unique<Pool2d>(spec, threads);
}

std::unique_ptr<Kernel> MakePool2dBackward(const OpSpec& spec, int threads) {
  return std::make_unique<Pool2dBackward>(spec, threads);
}

}  // namespace carole::onednn
