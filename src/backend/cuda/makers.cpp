// Chooses the kernel for an operation: our own, cuDNN (convolutions) or cuBLASLt (matrix products).
#include <algorithm>

#include "src/backend/cuda/convolution/image_convolution.h"
#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {
namespace {

bool IsDepthwise(const OpSpec& spec, const Shape& x) {
  const int64_t groups = spec.attributes_as<Conv2dAttributes>().groups;
  return groups == x[1] && groups > 1;
}

bool AllPlain(const OpSpec& spec) {
  const auto plain = [](const TensorSpec& t) { return !t.present || t.layout.is_plain(); };
  return std::all_of(spec.inputs.begin(), spec.inputs.end(), plain) &&
         std::all_of(spec.outputs.begin(), spec.outputs.end(), plain);
}

}  // namespace

KernelMaker* FindMaker(const OpSpec& spec, const Device& device) {
  if (!SupportsTypes(spec)) return nullptr;
  switch (spec.kind) {
    case OpKind::kConv2d:
      if (IsMatmulToFp32(spec)) return MakeMatmulToFp32;
      if (ImageConvolution::Of(spec, device)) return MakeImageConv2d;
      return IsDepthwise(spec, spec.inputs[0].shape) ? MakeDepthwise : MakeConv2d;
    case OpKind::kConv2dBackwardData:
      return IsDepthwise(spec, spec.outputs[0].shape) ? MakeDepthwiseBackwardData
                                                      : MakeConv2dBackwardData;
    case OpKind::kConv2dBackwardFilter:
      if (ImageConvolution::Of(spec, device)) return MakeImageConv2dBackwardFilter;
      if (HasReluYInput(spec)) return nullptr;
      if (IsMatmulBackwardFilterToFp32(spec)) return MakeMatmulBackwardFilterToFp32;
      return IsDepthwise(spec, spec.inputs[0].shape) ? MakeDepthwiseBackwardFilter
                                                     : MakeConv2dBackwardFilter;
    case OpKind::kLinear:
      return MakeLinear;
    case OpKind::kLinearBackwardData:
      return MakeLinearBackwardData;
    case OpKind::kLinearBackwardFilter:
      return MakeLinearBackwardFilter;
    case OpKind::kBatchNorm:
      return MakeBatchNorm;
    case OpKind::kBatchNormBackward:
      return spec.attributes_as<BatchNormAttributes>().training ? MakeBatchNormBackward : nullptr;
    case OpKind::kRelu:
    case OpKind::kReluBackward:
    case OpKind::kHardActivation:
    case OpKind::kHardActivationBackward:
    case OpKind::kAdd:
    case OpKind::kScaledAdd:
    case OpKind::kScale:
      return MakeElementwise;
    case OpKind::kScaleChannels:
    case OpKind::kScaleChannelsBackward:
      return MakeScaleChannels;
    case OpKind::kPool2d:
      return MakePool2d;
    case OpKind::kPool2dBackward:
      return MakePool2dBackward;
    case OpKind::kLrn:
      return MakeLrn;
    case OpKind::kLrnBackward:
      return MakeLrnBackward;
    case OpKind::kDropout:
    case OpKind::kDropoutBackward:
      return MakeDropout;
    case OpKind::kSoftmax:
      return MakeSoftmax;
    case OpKind::kSoftmaxCrossEntropy:
      return MakeSoftmaxCrossEntropy;
    case OpKind::kConcat:
    case OpKind::kSlice:
      return MakeChannelCopy;
    case OpKind::kPad2d:
      return MakePad2d;
    case OpKind::kNormalize:
      return MakeNormalize;
    case OpKind::kReorder:
      return AllPlain(spec) ? MakeReorder : nullptr;
    case OpKind::kCasts:
      return AllPlain(spec) ? MakeCasts : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace carole::cuda
