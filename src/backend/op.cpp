#include "src/backend/op.h"

namespace carole {

bool IsActivationInput(OpKind kind, size_t place) {
  using Norm = BatchNormPlaces;
  using Back = BatchNormBackwardPlaces;
  switch (kind) {
    case OpKind::kConv2d:
      return place == Conv2dPlaces::kX || place == Conv2dPlaces::kResidual;
    case OpKind::kConv2dBackwardData:
      return place != Conv2dBackwardDataPlaces::kW;
    case OpKind::kLinear:
    case OpKind::kLinearBackwardData:
      return place == 0;
    case OpKind::kBatchNorm:
      return place == Norm::kX || place == Norm::kResidual;
    case OpKind::kBatchNormBackward:
      return place <= Back::kY || place == Back::kDy2 || place == Back::kAddend;
    case OpKind::kPool2dBackward:
      return place == 0;
    case OpKind::kNormalize:
    case OpKind::kSoftmax:
    case OpKind::kSoftmaxCrossEntropy:
      return false;
    default:
      return true;
  }
}

bool IsActivationOutput(OpKind kind, size_t place) {
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
      return place == 0;
    case OpKind::kBatchNormBackward:
      return place == BatchNormBackwardPlaces::kDx || place == BatchNormBackwardPlaces::kDresidual;
    default:
      return true;
  }
}

bool IsFilterInput(OpKind kind, size_t place) {
  switch (kind) {
    case OpKind::kConv2d:
    case OpKind::kConv2dBackwardData:
    case OpKind::kLinear:
    case OpKind::kLinearBackwardData:
      return place == 1;
    default:
      return false;
  }
}

bool CanWriteReluBitmask(const BatchNormAttributes& attributes, const Shape& y) {
  constexpr int64_t kGrain = 2 * BatchNormAttributes::kReluBitmaskBits;  // 16 bytes in 16 bits, too
  return attributes.training && attributes.relu && attributes.ceiling == 0 && y.rank() == 4 &&
         y[1] % kGrain == 0;
}

Shape ReluBitmaskShape(const Shape& y) {
  return {y[0], y[1] / BatchNormAttributes::kReluBitmaskBits, y[2], y[3]};
}

bool HasReluBitmask(const OpSpec& spec) {
  if (spec.kind == OpKind::kBatchNorm)
    return IsPresent(spec.outputs, BatchNormPlaces::kReluBitmask);
  return spec.kind == OpKind::kBatchNormBackward &&
         IsPresent(spec.inputs, BatchNormBackwardPlaces::kReluBitmask);
}

bool MasksByRelu(const OpSpec& spec) {
  static_assert(+Conv2dBackwardDataPlaces::kReluY == +FilterGradientPlaces::kReluY);
  const bool may =
      spec.kind == OpKind::kConv2dBackwardData || spec.kind == OpKind::kConv2dBackwardFilter;
  return may && IsPresent(spec.inputs, FilterGradientPlaces::kReluY);
}

}  // namespace carole
