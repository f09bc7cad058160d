// The oneDNN backend: which factory makes the kernel of which operation, and which operations are
// supported.
#include "src/backend/backend.h"

#include <omp.h>

#include <algorithm>

#include "src/backend/host/backend.h"
#include "src/backend/onednn/kernels/onednn.h"
#include "src/backend/onednn/winograd/winograd.h"
#include "src/core/check.h"
#include "src/core/log.h"

namespace carole {
namespace onednn {
namespace {

// One factory for each OpKind, in the order of the enumeration.
constexpr KernelFactory* kKernelFactories[] = {
    MakeConv2d,
    MakeConv2dBackwardData,
    MakeConv2dBackwardFilter,
    MakeLinear,
    MakeLinearBackwardData,
    MakeLinearBackwardFilter,
    MakeBatchNorm,
    MakeBatchNormBackward,
    MakeElementwise,  // ReLU
    MakeElementwise,  // and its gradient
    MakeElementwise,  // other activations
    MakeElementwise,  // and their gradients
    MakeElementwise,  // sum
    MakeElementwise,  // scaled sum
    MakeElementwise,  // scale
    MakeScaleChannels,
    MakeScaleChannels,
    MakePool2d,
    MakePool2dBackward,
    MakeLrn,
    MakeLrn,
    MakeDropout,
    MakeDropout,
    MakeSoftmax,
    MakeSoftmaxCrossEntropy,
    MakeChannelCopy,
    MakeChannelCopy,
    MakePad2d,
    MakeNormalize,
    nullptr,  // reshape: the Executable reuses the memory
    MakeReorder,
    nullptr};  // casts: for GPUs, where each launch has a cost
static_assert(std::size(kKernelFactories) == static_cast<size_t>(OpKind::kCasts) + 1);

// Whether the kernels support these types: fp32 for all tensors, or bf16 for activations and
// filters and fp32 for the others. Results of products, of kReorder and of kNormalize may be fp32
// or bf16.
bool HasSupportedTypes(const OpSpec& spec) {
  const bool narrow = spec.inputs[0].dtype == DType::kBF16;
  const bool any_result = spec.kind == OpKind::kReorder || spec.kind == OpKind::kNormalize ||
                          IsFilterInput(spec.kind, 1);
  auto fits = [&](const TensorSpec& t, bool is_activation, bool any) {
    if (!t.present || t.dtype == DType::kI32 || t.dtype == DType::kU8) return true;
    if (any) return t.dtype == DType::kF32 || t.dtype == DType::kBF16;
    return t.dtype == (narrow && is_activation ? DType::kBF16 : DType::kF32);
  };
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const bool is_activation = IsActivationInput(spec.kind, i) || IsFilterInput(spec.kind, i);
    if (!fits(spec.inputs[i], is_activation, false)) return false;
  }
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    if (!fits(spec.outputs[o], IsActivationOutput(spec.kind, o), any_result && o == 0))
      return false;
  }
  return true;
}

void RequireBf16() {
  if (!HasIsa(dnnl::cpu_isa::avx512_core)) {
    throw ConfigError(
        "[precision] bf16: not supported by this CPU: it has neither avx512_bf16 nor the AVX-512 "
        "instructions (f, bw, vl, dq) that can emulate it; use --precision=fp32");
  }
  if (!HasIsa(dnnl::cpu_isa::avx512_core_bf16)) {
    LogWarning("precision",
               "bf16: this CPU has no avx512_bf16, so bf16 products are emulated and slower than "
               "fp32; use --precision=fp32");
  } else if (HasIsa(dnnl::cpu_isa::avx512_core_fp16) && !HasIsa(dnnl::cpu_isa::avx512_core_amx)) {
    // Measured on an Emerald Rapids: ResNet-50 in bf16 without AMX has 0.64 of fp32's speed.
    // Intel's server CPUs with avx512_fp16 have AMX, so it must be hidden. AMD's CPUs have no
    // avx512_fp16.
    LogWarning("precision",
               "bf16: AMX is not visible on this CPU (a hypervisor may hide it), so bf16 is slower "
               "than fp32; use --precision=fp32");
  }
}

[[noreturn]] void RefuseFp16() {
  throw ConfigError(
      fmt::format("[precision] fp16: not supported by this CPU: {}; use --precision={}",
                  HasIsa(dnnl::cpu_isa::avx512_core_fp16)
                      ? "it has avx512_fp16, but the onednn backend supports only fp32 and bf16"
                      : "it has no avx512_fp16",
                  HasIsa(dnnl::cpu_isa::avx512_core_bf16) ? "bf16" : "fp32"));
}

class OneDnnBackend : public host::HostBackend {
 public:
  explicit OneDnnBackend(int threads) : HostBackend(std::max(threads, 1)) {}

  std::string_view name() const override { return "onednn"; }

  void SetPrecision(Precision precision) override {
    if (precision == Precision::kFp16) RefuseFp16();
    if (precision != Precision::kBf16) return Backend::SetPrecision(precision);
    RequireBf16();
    activation_dtype_ = ActivationType(precision);
  }

  bool Supports(const OpSpec& spec) const override {
    // The gradient of a bias in kReluBackward is of no use here: oneDNN computes it together with
    // the gradient of the filter.
    const bool sums_bias =
        spec.kind == OpKind::kReluBackward && IsPresent(spec.outputs, ReluBackwardIndices::kDb);
    return kKernelFactories[static_cast<size_t>(spec.kind)] != nullptr && HasSupportedTypes(spec) &&
           !sums_bias && !HasReluYInput(spec) && !HasReluBitmask(spec);
  }

  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    CAROLE_CHECK(Supports(spec), "onednn does not support {}", Name(spec.kind));
    omp_set_num_threads(threads());  // oneDNN plans a primitive for the current number of threads
    try {
      if (UsesWinograd(spec, winograd_)) return MakeWinograd(spec, threads());
      return kKernelFactories[static_cast<size_t>(spec.kind)](spec, threads());
    } catch (const dnnl::error& e) {
      throw DeviceError(fmt::format("[onednn] {} of {}: oneDNN cannot make it: {} (status {})",
                                    Name(spec.kind), spec.inputs[0].shape.ToString(), e.what(),
                                    static_cast<int>(e.status)));
    }
  }
};

}  // namespace
}  // namespace onednn

bool OneDnnAvailable() { return true; }

std::unique_ptr<Backend> MakeOneDnnBackend(int threads) {
  return std::make_unique<onednn::OneDnnBackend>(threads);
}

}  // namespace carole
