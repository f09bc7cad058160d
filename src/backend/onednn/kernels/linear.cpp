// Fully connected layers, as oneDNN's inner product.
#include "src/backend/ops/linear.h"

#include "src/backend/onednn/kernels/onednn.h"

namespace carole::onednn {
namespace {

namespace d = dnnl;

Md Plain(const TensorSpec& t) {
  return Md(Dims(t.shape), DataType(t.dtype), Dims(PlainStrides(t.shape, Layout::RowMajor())));
}
Md BiasMd(const TensorSpec& bias) { return bias.present ? Plain(bias) : Md(); }

d::inner_product_forward::primitive_desc ForwardDesc(const Md& x, const Md& w, const Md& bias,
                                                     const Md& y, bool relu) {
  d::primitive_attr attributes = UserScratchpad();
  if (relu) {
    d::post_ops ops;
    ops.append_eltwise(d::algorithm::eltwise_relu, 0.f, 0.f);
    attributes.set_post_ops(ops);
  }
  return d::inner_product_forward::primitive_desc(Engine(), d::prop_kind::forward_training, x, w,
                                                  bias, y, attributes);
}

class Linear : public PrimitiveKernel {
 public:
  Linear(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const auto pd =
        ForwardDesc(Plain(spec.inputs[0]), AnyMd(spec.inputs[1]), BiasMd(spec.inputs[2]),
                    Plain(spec.outputs[0]), spec.attributes.as<LinearAttributes>().relu);
    SetPrimitive(d::inner_product_forward(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_SRC, pd.src_desc());
    Input(1, DNNL_ARG_WEIGHTS, pd.weights_desc());
    if (spec.inputs[2].present) Input(2, DNNL_ARG_BIAS, pd.bias_desc());
    Output(0, DNNL_ARG_DST, pd.dst_desc());
  }
};

class LinearBackwardData : public PrimitiveKernel {
 public:
  LinearBackwardData(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const Md dx = Plain(spec.outputs[0]), w = AnyMd(spec.inputs[1]), dy = Plain(spec.inputs[0]);
    const d::inner_product_backward_data::primitive_desc pd(
        Engine(), dx, w, dy, ForwardDesc(dx, w, Md(), dy, false), UserScratchpad());
    SetPrimitive(d::inner_product_backward_data(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_DIFF_DST, pd.diff_dst_desc());
    Input(1, DNNL_ARG_WEIGHTS, pd.weights_desc());
    Output(0, DNNL_ARG_DIFF_SRC, pd.diff_src_desc());
  }
};

class LinearBackwardFilter : public PrimitiveKernel {
 public:
  LinearBackwardFilter(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    const Md x = Plain(spec.inputs[0]), dw = AnyMd(spec.outputs[0]), db = BiasMd(spec.outputs[1]),
             dy = Plain(spec.inputs[1]);
    // The gradient dw is fp32, but the forward hint needs the matrix in the type of x.
    const Md w = AnyMd({.shape = spec.outputs[0].shape, .dtype = spec.inputs[0].dtype});
    const d::inner_product_backward_weights::primitive_desc pd(
        Engine(), x, dw, db, dy, ForwardDesc(x, w, db, dy, false), UserScratchpad());
    SetPrimitive(d::inner_product_backward_weights(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_SRC, pd.src_desc());
    Input(1, DNNL_ARG_DIFF_DST, pd.diff_dst_desc());
    Output(0, DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc());
    if (spec.outputs[1].present) Output(1, DNNL_ARG_DIFF_BIAS, pd.diff_bias_desc());
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kLinear, .make = Make<Linear>},
    {.kind = op::kLinearBackwardData, .make = Make<LinearBackwardData>},
    {.kind = op::kLinearBackwardFilter, .make = Make<LinearBackwardFilter>},
};

}  // namespace

KernelRows LinearKernels() { return kRows; }

}  // namespace carole::onednn
