#include "src/backend/op.h"

namespace carole {

bool IsActivationInput(OpKind kind, size_t index) {
  using Norm = BatchNormIndices;
  using Back = BatchNormBackwardIndices;
  switch (kind) {
    case OpKind::kConv2d:
      return index == Conv2dIndices::kX || index == Conv2dIndices::kResidual;
    case OpKind::kConv2dBackwardData:
      return index != Conv2dBackwardDataIndices::kW;
    case OpKind::kLinear:
    case OpKind::kLinearBackwardData:
      return index == 0;
    case OpKind::kBatchNorm:
      return index == Norm::kX || index == Norm::kResidual;
    case OpKind::kBatchNormBackward:
      return index <= Back::kY || index == Back::kDy2 || index == Back::kAddend;
    case OpKind::kPool2dBackward:
      return index == 0;
    case OpKind::kNormalize:
    case OpKind::kSoftmax:
    case OpKind::kSoftmaxCrossEntropy:
      return false;
    default:
      return true;
  }
}

bool IsActivationOutput(OpKind kind, size_t index) {
  switch (kind) {
    case OpKind::kConv2dBackwardFilter:
    case OpKind::kLinearBackwardFilter:
    case OpKind::kSoftmax:
    case OpKind::kSoftmaxCrossEntropy:
      return false;
    case OpKind::kBatchNorm:
    case OpKind::kPool2d:
    case OpKind::kConv2dBackwardData:
    case OpKind::kReluBackward:
      return index == 0;
    case OpKind::kBatchNormBackward:
      return index == BatchNormBackwardIndices::kDx ||
             index == BatchNormBackwardIndices::kDresidual;
    default:
      return true;
  }
}

bool IsFilterInput(OpKind kind, size_t index) {
  switch (kind) {
    case OpKind::kConv2d:
    case OpKind::kConv2dBackwardData:
    case OpKind::kLinear:
    case OpKind::kLinearBackwardData:
      return index == 1;
    default:
      return false;
  }
}

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
  if (spec.kind == OpKind::kBatchNorm)
    return IsPresent(spec.outputs, BatchNormIndices::kReluBitmask);
  return spec.kind == OpKind::kBatchNormBackward &&
         IsPresent(spec.inputs, BatchNormBackwardIndices::kReluBitmask);
}

bool HasReluYInput(const OpSpec& spec) {
  static_assert(+Conv2dBackwardDataIndices::kReluY == +FilterGradientIndices::kReluY);
  const bool is_conv_gradient =
      spec.kind == OpKind::kConv2dBackwardData || spec.kind == OpKind::kConv2dBackwardFilter;
  return is_conv_gradient && IsPresent(spec.inputs, FilterGradientIndices::kReluY);
}

}  // namespace carole
