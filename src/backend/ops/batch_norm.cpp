#include "src/backend/ops/batch_norm.h"

namespace carole {

bool CanWriteReluBitmask(const BatchNormAttributes& attributes, const Shape& y) {
  // Two bytes of the mask: 8 channels, which are 16 bytes in 16-bit types.
  constexpr int64_t kGrain = 2 * BatchNormAttributes::kReluBitmaskBits;
  return attributes.training && attributes.relu && attributes.ceiling == 0 && y.rank() == 4 &&
         y[1] % kGrain == 0;
}

Shape ReluBitmaskShape(const Shape& y) {
  return {y[0], y[1] / BatchNormAttributes::kReluBitmaskBits, y[2], y[3]};
}

bool HasReluBitmask(const OpSpec& spec) {
  if (spec.kind == op::kBatchNorm)
    return IsPresent(spec.outputs, kPosition<BatchNormOutputs>.relu_bitmask);
  return spec.kind == op::kBatchNormBackward &&
         IsPresent(spec.inputs, kPosition<BatchNormBackwardInputs>.relu_bitmask);
}

}  // namespace carole
