// The oneDNN backend: precisions, and how kernels are found.
#include "src/backend/backend.h"

#include <omp.h>

#include <algorithm>

#include "src/backend/host/backend.h"
#include "src/backend/onednn/kernels/onednn.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole {
namespace onednn {
namespace {

void RequireBf16() {
  if (!HasIsa(dnnl::cpu_isa::avx512_core)) {
    throw ConfigError(
        "[precision] bf16: not supported by this CPU: it has neither avx512_bf16 nor the AVX-512 "
        "instructions (f, bw, vl, dq) that can emulate it; use " +
        Option("precision", "fp32"));
  }
  if (!HasIsa(dnnl::cpu_isa::avx512_core_bf16)) {
    LogWarning("precision",
               "bf16: this CPU has no avx512_bf16, so bf16 products are emulated and slower than "
               "fp32; use {}",
               Option("precision", "fp32"));
  } else if (HasIsa(dnnl::cpu_isa::avx512_core_fp16) && !HasIsa(dnnl::cpu_isa::avx512_core_amx)) {
    // Measured on an Emerald Rapids: ResNet-50 in bf16 without AMX has 0.64 of fp32's speed.
    // Intel's server CPUs with avx512_fp16 have AMX, so it must be hidden. AMD's CPUs have no
    // avx512_fp16.
    LogWarning("precision",
               "bf16: AMX is not visible on this CPU (a hypervisor may hide it), so bf16 is slower "
               "than fp32; use {}",
               Option("precision", "fp32"));
  }
}

[[noreturn]] void RefuseFp16() {
  throw ConfigError(
      fmt::format("[precision] fp16: not supported by this CPU: {}; use {}",
                  HasIsa(dnnl::cpu_isa::avx512_core_fp16)
                      ? "it has avx512_fp16, but the onednn backend supports only fp32 and bf16"
                      : "it has no avx512_fp16",
                  Option("precision", HasIsa(dnnl::cpu_isa::avx512_core_bf16) ? "bf16" : "fp32")));
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

  bool Supports(const OpSpec& spec) const override { return Find(spec) != nullptr; }

  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    const KernelRow* const row = Find(spec);
    CAROLE_CHECK(row != nullptr, "onednn does not support {}", Name(spec.kind));
    omp_set_num_threads(threads());  // oneDNN plans a primitive for the current number of threads
    try {
      return row->make(spec, {threads(), winograd_});
    } catch (const dnnl::error& e) {
      throw DeviceError(fmt::format("[onednn] {} of {}: oneDNN cannot make it: {} (status {})",
                                    Name(spec.kind), spec.inputs[0].shape.ToString(), e.what(),
                                    static_cast<int>(e.status)));
    }
  }

 private:
  const KernelRow* Find(const OpSpec& spec) const {
    return FindKernel(KernelFiles(), spec, Cpu{threads(), winograd_}, SupportsTypes);
  }
};

}  // namespace
}  // namespace onednn

bool OneDnnAvailable() { return true; }

std::unique_ptr<Backend> MakeOneDnnBackend(int threads) {
  return std::make_unique<onednn::OneDnnBackend>(threads);
}

}  // namespace carole
