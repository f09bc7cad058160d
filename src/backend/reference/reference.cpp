#include "src/backend/reference/reference.h"

#include "src/backend/host/backend.h"
#include "src/backend/ops/copies.h"

namespace carole {
namespace reference {
namespace {

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

  bool Supports(const OpSpec& spec) const override { return Find(spec) != nullptr; }

  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    const KernelRow* const row = Find(spec);
    CAROLE_CHECK(row != nullptr, "the reference backend has no {} for {}", Name(spec.kind),
                 spec.inputs.empty() ? "no input" : Name(spec.inputs[0].dtype));
    if (spec.kind != op::kReorder && NarrowType(spec) != DType::kF32)
      return MakeNarrow(spec, *row, threads());
    return row->make(spec, threads());
  }

 private:
  const KernelRow* Find(const OpSpec& spec) const {
    return FindKernel(KernelFiles(), spec, threads(), SupportsTypes);
  }
};

}  // namespace

bool SupportsTypes(const OpSpec& spec, int) {
  return spec.inputs[0].dtype != DType::kI32 && spec.inputs[0].dtype != DType::kU8;
}

}  // namespace reference

std::unique_ptr<Backend> MakeReferenceBackend(int threads) {
  return std::make_unique<reference::ReferenceBackend>(threads);
}

}  // namespace carole
