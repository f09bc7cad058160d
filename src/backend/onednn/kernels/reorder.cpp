// Copies from one layout or type to another.

#include "src/backend/onednn/kernels/onednn.h"
#include "src/backend/ops/copies.h"

namespace carole::onednn {
namespace {

class Reorder : public PrimitiveKernel {
 public:
  Reorder(const OpSpec& spec, int threads) : PrimitiveKernel(spec, threads) {
    Md from = ToMd(spec.inputs[0]), to = ToMd(spec.outputs[0]);
    // oneDNN describes a grouped filter with one dimension more. The plain side needs the same
    // number of dimensions.
    if (from.get_ndims() < to.get_ndims()) from = GroupedFilterMd(spec.inputs[0], to.get_dims()[0]);
    if (to.get_ndims() < from.get_ndims())
      to = GroupedFilterMd(spec.outputs[0], from.get_dims()[0]);
    const dnnl::reorder::primitive_desc pd(Engine(), from, Engine(), to, UserScratchpad());
    SetPrimitive(dnnl::reorder(pd), pd.scratchpad_desc());
    Input(0, DNNL_ARG_FROM, from);
    Output(0, DNNL_ARG_TO, to);
    input_layouts_ = {spec.inputs[0].layout};
    output_layouts_ = {spec.outputs[0].layout};
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kReorder, .make = Make<Reorder>, .supports = SupportsTypesButResult},
};

}  // namespace

KernelRows ReorderKernels() { return kRows; }

}  // namespace carole::onednn
