#include "src/backend/ops/conv2d.h"

namespace carole {

bool HasReluYInput(const OpSpec& spec) {
  if (spec.kind == op::kConv2dBackwardData)
    return IsPresent(spec.inputs, kPosition<Conv2dBackwardDataInputs>.relu_y);
  return spec.kind == op::kConv2dBackwardFilter &&
         IsPresent(spec.inputs, kPosition<FilterGradientInputs>.relu_y);
}

}  // namespace carole
