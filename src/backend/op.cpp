#include "src/backend/op.h"

namespace carole {

bool IsActivationInput(OpKind kind, size_t place) {
  using Norm = BatchNormPlaces;
  using Back = BatchNormBackwardPlaces;
  switch (kind) {
    case OpKind::kConv2d:
      return place == Conv2dPlaces::kX || place == Conv2dPlaces::kResidual;
    case OpKind::kConv2dBackwardData:
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

}  // namespace carole
