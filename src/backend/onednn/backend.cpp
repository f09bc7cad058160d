// The oneDNN backend: which maker serves which operation.
#include "src/backend/backend.h"

#include <omp.h>

#include <algorithm>

#include "src/backend/onednn/kernels/onednn.h"
#include "src/backend/onednn/winograd/winograd.h"
#include "src/core/check.h"
#include "src/core/log.h"

namespace carole {
namespace onednn {
namespace {

// In the order of OpKind.
constexpr KernelMaker* kMakers[] = {MakeConv2d,
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
                                    nullptr,  // reshape: the plan renames memory
                                    MakeReorder,
                                    nullptr};  // casts: for devices, whose launches cost
static_assert(std::size(kMakers) == static_cast<size_t>(OpKind::kCasts) + 1);

// fp32 throughout, or bf16 where activations and filters are; products and normalized pixels may
// be either.
bool HasTypes(const OpSpec& spec) {
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
        "[precision] bf16: not on this CPU: it has no avx512_bf16, nor the avx512 (f, bw, vl, dq) "
        "that it can be emulated with; use --precision=fp32");
  }
  if (!HasIsa(dnnl::cpu_isa::avx512_core_bf16)) {
    LogWarning("precision",
               "bf16: this CPU has no avx512_bf16, its products are emulated: slower than fp32");
  } else if (HasIsa(dnnl::cpu_isa::avx512_core_fp16) && !HasIsa(dnnl::cpu_isa::avx512_core_amx)) {
    // Emerald Rapids: ResNet-50 at 0.64 of fp32's speed. AMD's CPUs have no avx512_fp16.
    LogWarning("precision",
               "bf16: this CPU's AMX is hidden, by a hypervisor perhaps: slower than fp32");
  }
}

[[noreturn]] void RefuseFp16() {
  throw ConfigError(
      fmt::format("[precision] fp16: not on this CPU: {}; use --precision={}",
                  HasIsa(dnnl::cpu_isa::avx512_core_fp16)
                      ? "it has avx512_fp16, but this backend has fp32 and bf16 kernels only"
                      : "it has no avx512_fp16",
                  HasIsa(dnnl::cpu_isa::avx512_core_bf16) ? "bf16" : "fp32"));
}

class OneDnnBackend : public Backend {
 public:
  explicit OneDnnBackend(int threads) : threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return "onednn"; }
  int threads() const override { return threads_; }

  void SetPrecision(Precision precision) override {
    if (precision == Precision::kFp16) RefuseFp16();
    if (precision != Precision::kBf16) return Backend::SetPrecision(precision);
    RequireBf16();
    activation_dtype_ = ActivationType(precision);
  }

  bool Supports(const OpSpec& spec) const override {
    // The library sums the gradient of a bias beside that of its filter.
    const bool sums =
        spec.kind == OpKind::kReluBackward && IsPresent(spec.outputs, ReluBackwardPlaces::kDb);
    return kMakers[static_cast<size_t>(spec.kind)] != nullptr && HasTypes(spec) && !sums &&
           !MasksByRelu(spec) && !HasReluBitmask(spec);
  }

  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    CAROLE_CHECK(Supports(spec), "onednn does not support {}", Name(spec.kind));
    omp_set_num_threads(threads_);  // primitives are cut for the threads of their maker
    try {
      if (WantsWinograd(spec, winograd_)) return MakeWinograd(spec, threads_);
      return kMakers[static_cast<size_t>(spec.kind)](spec, threads_);
    } catch (const dnnl::error& e) {
      throw DeviceError(fmt::format("[onednn] {} of {}: the library refused: {} (status {})",
                                    Name(spec.kind), spec.inputs[0].shape.ToString(), e.what(),
                                    static_cast<int>(e.status)));
    }
  }

 private:
  int threads_;
};

}  // namespace
}  // namespace onednn

bool OneDnnAvailable() { return true; }

std::unique_ptr<Backend> MakeOneDnnBackend(int threads) {
  return std::make_unique<onednn::OneDnnBackend>(threads);
}

}  // namespace carole
