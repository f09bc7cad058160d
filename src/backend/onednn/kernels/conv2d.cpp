// Convolutions, in fp32 or with bf16 factors and fp32 sums. oneDNN chooses the layout of every
// tensor, so activations stay in its blocked layouts from layer to layer.
#include "src/backend/ops/conv2d.h"

#include "src/backend/onednn/kernels/onednn.h"

namespace carole::onednn {
namespace {

namespace d = dnnl;

struct Geometry {
  explicit Geometry(const Conv2dAttributes& a)
      : strides{a.stride_h, a.stride_w},
        dilates{a.dilation - 1, a.dilation - 1},
        before{a.padding.top, a.padding.left},
        after{a.padding.bottom, a.padding.right} {}
  d::memory::dims strides, dilates, before, after;
};

Md AnyFilter(const TensorSpec& w, DType dtype, int64_t groups) {
  const TensorSpec any{.shape = w.shape, .dtype = dtype};
  return groups == 1 ? AnyMd(any) : GroupedFilterMd(any, groups);
}
Md AnyFilter(const TensorSpec& w, int64_t groups) { return AnyFilter(w, w.dtype, groups); }

constexpr int kArgResidual = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1;

// The forward descriptor, which is also the hint for backward primitives.
d::convolution_forward::primitive_desc ForwardDesc(const Md& x, const Md& w, const Md& bias,
                                                   const Md& y, const Conv2dAttributes& a,
                                                   const Md& residual = {}) {
  const Geometry g(a);
  d::primitive_attr attributes = UserScratchpad();
  d::post_ops ops;
  if (!residual.is_zero()) ops.append_binary(d::algorithm::binary_add, residual);
  if (a.relu) ops.append_eltwise(d::algorithm::eltwise_relu, 0.f, 0.f);
  attributes.set_post_ops(ops);
  return d::convolution_forward::primitive_desc(
      Engine(), d::prop_kind::forward_training, d::algorithm::convolution_direct, x, w, bias, y,
      g.strides, g.dilates, g.before, g.after, attributes);
}

Md BiasMd(const TensorSpec& bias) {
  return bias.present ? Md(Dims(bias.shape), d::memory::data_type::f32, Tag::a) : Md();
}

// The preferred layout of an activation: plain if it has one pixel, since blocks would only add
// padding, else oneDNN's choice.
Md PreferredMd(const TensorSpec& t) {
  const bool pixel = t.shape[2] == 1 && t.shape[3] == 1;
  return pixel ? Md(Dims(t.shape), DataType(t.dtype), Tag::nhwc) : AnyMd(t);
}

// This tensor in the same blocks of channels as `like`, or in its preferred layout if `like` has no
// blocks. Without this, oneDNN chooses NHWC for a strided gradient between nodes in blocked
// layouts, and the two reorders cost more than its kernel gains.
Md BlockedLike(const TensorSpec& t, const Layout& like) {
  const auto* layout = dynamic_cast<const MdLayout*>(like.opaque());
  const int64_t block = layout == nullptr ? 0 : ChannelBlockOf(layout->md());
  return block == 0 ? PreferredMd(t) : InChannelBlocks(t.shape, DataType(t.dtype), block);
}

class Conv2d : public PrimitiveKernel {
 public:
  Conv2d(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const auto& a = spec.attributes.as<Conv2dAttributes>();
    const bool adds = IsPresent(spec.inputs, 3);
    const auto pd = ForwardDesc(PreferredMd(spec.inputs[0]), AnyFilter(spec.inputs[1], a.groups),
                                BiasMd(spec.inputs[2]), PreferredMd(spec.outputs[0]), a,
                                adds ? AnyMd(spec.inputs[3]) : Md());
    SetPrimitive(d::convolution_forward(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_SRC, pd.src_desc());
    Input(1, DNNL_ARG_WEIGHTS, pd.weights_desc());
    if (spec.inputs[2].present) Input(2, DNNL_ARG_BIAS, pd.bias_desc());
    if (adds) Input(3, kArgResidual, pd.query_md(d::query::exec_arg_md, kArgResidual));
    Output(0, DNNL_ARG_DST, pd.dst_desc());
  }
};

class Conv2dBackwardData : public PrimitiveKernel {
 public:
  Conv2dBackwardData(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const auto& a = spec.attributes.as<Conv2dAttributes>();
    const Geometry g(a);
    const Layout& layout = spec.inputs[0].layout;
    const Md dx = BlockedLike(spec.outputs[0], layout), w = AnyFilter(spec.inputs[1], a.groups),
             dy = BlockedLike(spec.inputs[0], layout);
    const d::convolution_backward_data::primitive_desc pd(
        Engine(), d::algorithm::convolution_direct, dx, w, dy, g.strides, g.dilates, g.before,
        g.after, ForwardDesc(dx, w, Md(), dy, a), UserScratchpad());
    SetPrimitive(d::convolution_backward_data(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_DIFF_DST, pd.diff_dst_desc());
    Input(1, DNNL_ARG_WEIGHTS, pd.weights_desc());
    Output(0, DNNL_ARG_DIFF_SRC, pd.diff_src_desc());
  }
};

class Conv2dBackwardFilter : public PrimitiveKernel {
 public:
  Conv2dBackwardFilter(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const auto& a = spec.attributes.as<Conv2dAttributes>();
    const Geometry g(a);
    const Md x = PreferredMd(spec.inputs[0]);
    const Md dw = AnyFilter(spec.outputs[0], a.groups), db = BiasMd(spec.outputs[1]),
             dy = PreferredMd(spec.inputs[1]);
    // The gradient dw is fp32, but the forward hint needs the filter in the type of x.
    const Md w = AnyFilter(spec.outputs[0], spec.inputs[0].dtype, a.groups);
    const d::convolution_backward_weights::primitive_desc pd(
        Engine(), d::algorithm::convolution_direct, x, dw, db, dy, g.strides, g.dilates, g.before,
        g.after, ForwardDesc(x, w, db, dy, a), UserScratchpad());
    SetPrimitive(d::convolution_backward_weights(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_SRC, pd.src_desc());
    Input(1, DNNL_ARG_DIFF_DST, pd.diff_dst_desc());
    Output(0, DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc());
    if (spec.outputs[1].present) Output(1, DNNL_ARG_DIFF_BIAS, pd.diff_bias_desc());
  }
};

bool SupportsGradient(const OpSpec& spec, const Cpu& cpu) {
  return SupportsTypes(spec, cpu) && !HasReluYInput(spec);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2d, .make = Make<Conv2d>},
    {.kind = op::kConv2dBackwardData,
     .make = Make<Conv2dBackwardData>,
     .supports = SupportsGradient},
    {.kind = op::kConv2dBackwardFilter,
     .make = Make<Conv2dBackwardFilter>,
     .supports = SupportsGradient},
};

}  // namespace

KernelRows Conv2dKernels() { return kRows; }

}  // namespace carole::onednn
