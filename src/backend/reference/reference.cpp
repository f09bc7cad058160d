#include "src/backend/reference/reference.h"

#include "src/backend/host/backend.h"

namespace carole {
namespace reference {
namespace {

// One factory for each OpKind, in the order of the enumeration.
constexpr KernelFactory* kKernelFactories[] = {MakeConv2d,
                                               MakeConv2dBackwardData,
                                               MakeConv2dBackwardFilter,
                                               MakeLinear,
                                               MakeLinearBackwardData,
                                               MakeLinearBackwardFilter,
                                               MakeBatchNorm,
                                               MakeBatchNormBackward,
                                               MakeRelu,
                                               MakeReluBackward,
                                               MakeActivation,
                                               MakeActivationBackward,
                                               MakeAdd,
                                               MakeScaledAdd,
                                               MakeScale,
                                               MakeScaleChannels,
                                               MakeScaleChannelsBackward,
                                               MakePool2d,
                                               MakePool2dBackward,
                                               MakeLrn,
                                               MakeLrnBackward,
                                               MakeDropout,
                                               MakeDropout,
                                               MakeSoftmax,
                                               MakeSoftmaxCrossEntropy,
                                               MakeConcat,
                                               MakeSlice,
                                               MakePad2d,
                                               MakeNormalize,
                                               MakeReshape,
                                               MakeReorder,
                                               nullptr};  // kCasts: only for GPUs
static_assert(std::size(kKernelFactories) == static_cast<size_t>(OpKind::kCasts) + 1);

bool IsPlainReorder(const OpSpec& spec) {
  return spec.inputs[0].layout.is_plain() && spec.outputs[0].layout.is_plain();
}

class ReferenceBackend : public host::HostBackend {
 public:
  explicit ReferenceBackend(int threads) : HostBackend(threads) {
    CAROLE_CHECK(threads >= 1, "reference backend with {} threads", threads);
  }

  std::string_view name() const override { return "reference"; }

  void SetPrecision(Precision precision) override {
    if (precision == Precision::kTf32) return Backend::SetPrecision(precision);
    activation_dtype_ = ActivationType(precision);
  }

  bool Supports(const OpSpec& spec) const override {
    if (spec.inputs.empty() || spec.outputs.empty()) return false;
    if (kKernelFactories[static_cast<size_t>(spec.kind)] == nullptr) return false;
    if (spec.kind == OpKind::kReorder) return IsPlainReorder(spec);
    if (spec.kind == OpKind::kBatchNormBackward &&
        !spec.attributes_as<BatchNormAttributes>().training) {
      return false;
    }
    const bool is_bytes = spec.inputs[0].dtype == DType::kU8;
    return spec.inputs[0].dtype != DType::kI32 && is_bytes == (spec.kind == OpKind::kNormalize);
  }

  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    CAROLE_CHECK(Supports(spec), "the reference backend has no {} for {}", Name(spec.kind),
                 spec.inputs.empty() ? "no input" : Name(spec.inputs[0].dtype));
    KernelFactory* const factory = kKernelFactories[static_cast<size_t>(spec.kind)];
    if (spec.kind != OpKind::kReorder && NarrowType(spec) != DType::kF32)
      return MakeNarrow(spec, factory, threads());
    return factory(spec, threads());
  }
};

}  // namespace

}  // namespace reference

std::unique_ptr<Backend> MakeReferenceBackend(int threads) {
  return std::make_unique<reference::ReferenceBackend>(threads);
}

}  // namespace carole
