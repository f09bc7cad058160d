// Which data types the kernels support, and which precisions a GPU supports.
#include "src/backend/cuda/convolution/convolution_task.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/ops/batch_norm.h"
#include "src/core/error.h"

namespace carole::cuda {
namespace {

// Whether this is the gradient of 16-bit filters that span the whole image, with sizes that tensor
// cores accept: both dimensions of the filter matrix are multiples of kGrain.
bool IsNarrowMatmulBackwardFilter(const OpSpec& spec) {
  if (spec.kind != op::kConv2dBackwardFilter || !IsNarrow(ElementType(spec))) return false;
  const Shape& w = spec.outputs[0].shape;
  constexpr int64_t kGrain = 8;  // 16 bytes
  return ConvolutionTask::Of(spec).SpansImage() && w[0] % kGrain == 0 &&
         w.size() / w[0] % kGrain == 0;
}

// Whether this is the gradient of a filter as cuDNN computes it, rounded to the type of its
// operands. If cuDNN gets padded channels, the gradient is fp32 instead: one pass of conv2d.cpp
// removes these channels and casts.
bool IsRoundedGradient(const OpSpec& spec) {
  return spec.kind == op::kConv2dBackwardFilter &&
         spec.attributes.as<Conv2dAttributes>().groups == 1 &&
         spec.inputs[0].shape[1] >= kNeverPaddedChannels &&
         spec.outputs[0].dtype == ElementType(spec) && !IsNarrowMatmulBackwardFilter(spec);
}

}  // namespace

bool IsMatmulBackwardFilterToFp32(const OpSpec& spec) {
  return IsNarrowMatmulBackwardFilter(spec) && spec.outputs[0].dtype == DType::kF32;
}

bool IsMatmulToFp32(const OpSpec& spec) {
  if (spec.kind != op::kConv2d || IsPresent(spec.inputs, kPosition<Conv2dInputs>.residual) ||
      !IsNarrow(ElementType(spec)) || spec.outputs[0].dtype != DType::kF32)
    return false;
  const Shape &x = spec.inputs[0].shape, &w = spec.inputs[1].shape;
  return x[2] * x[3] * w[2] * w[3] == 1 && w[1] == x[1];
}

DType ElementType(const OpSpec& spec) { return spec.inputs[0].dtype; }

bool IsCast(DType from, DType to) {
  return (IsNarrow(from) && to == DType::kF32) || (from == DType::kF32 && IsNarrow(to));
}

const KernelRow* FindKernel(const OpSpec& spec, const Device& device) {
  return carole::FindKernel(KernelFiles(), spec, device, SupportsTypes);
}

bool SupportsTypes(const OpSpec& spec, const Device&) {
  const DType type = ElementType(spec);
  if (type != DType::kF32 && !IsNarrow(type)) return false;
  const auto fits = [&](const TensorSpec& t, bool is_activation) {
    if (!t.present || t.dtype == DType::kI32) return true;
    if (t.dtype == DType::kU8) return HasReluBitmask(spec);
    return t.dtype == (is_activation ? type : DType::kF32);
  };
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const bool multiplied = IsActivationInput(spec.kind, i) || IsFilterInput(spec.kind, i);
    if (!fits(spec.inputs[i], multiplied)) return false;
  }
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    if (o == 0 && (IsRoundedGradient(spec) || IsMatmulToFp32(spec))) continue;
    if (!fits(spec.outputs[o], IsActivationOutput(spec.kind, o))) return false;
  }
  return true;
}

void RequirePrecision(Precision precision, int capability, std::string_view gpu) {
  const int wanted = precision == Precision::kFp32 ? 0 : precision == Precision::kFp16 ? 70 : 80;
  if (capability >= wanted) return;
  throw ConfigError(fmt::format(
      "[precision] {}: not supported by this GPU ({}): got compute capability {}.{}, want {}.{} or "
      "higher; use {}",
      Name(precision), gpu, capability / 10, capability % 10, wanted / 10, wanted % 10,
      Option("precision", precision != Precision::kFp16 && capability >= 70 ? "fp16" : "fp32")));
}

}  // namespace carole::cuda
