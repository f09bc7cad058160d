#include "tests/support/cuda_emulation/backend.h"

#include <cublasLt.h>
#include <cudnn_frontend.h>

#include "src/backend/cuda/kernels/arena_math.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/host/backend.h"

namespace carole::testing {
namespace {

class EmulatedCudaBackend : public host::HostBackend {
 public:
  explicit EmulatedCudaBackend(const EmulatedCudaOptions& options)
      : HostBackend(1), cudnn_{options.stream} {
    device_.run_context = &run_context_;
    device_.stream = options.stream;
    device_.cudnn = &cudnn_;
    device_.capability = 90;
    device_.force_optional_kernels = options.force_optional_kernels;
  }

  std::string_view name() const override { return "emulated_cuda"; }
  void SetPrecision(Precision precision) override {
    device_.tf32 = precision == Precision::kTf32;
    activation_dtype_ = ActivationType(precision);
  }
  bool Supports(const OpSpec& spec) const override {
    return cuda::FindKernel(spec, device_) != nullptr;
  }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    const cuda::KernelRow* const row = cuda::FindKernel(spec, device_);
    CAROLE_CHECK(row != nullptr, "no emulated kernel for {}", Name(spec.kind));
    return row->make(spec, device_);
  }
  void BeginRun(const RunContext& context) const override {
    EmulatedPush(device_.stream,
                 [this, now = cuda::DeviceRunContext(context)] { run_context_ = now; });
  }
  const ArenaMath& arena_math() const override { return *math_; }

 private:
  mutable cuda::DeviceRunContext run_context_;
  cudnnContext cudnn_;
  cuda::Device device_;
  const std::unique_ptr<ArenaMath> math_ = cuda::MakeArenaMath(device_);
};

}  // namespace

std::string LastMatmul() { return EmulatedLastMatmul(); }

FailEveryCall::FailEveryCall() { EmulatedStickyError() = 700; }
FailEveryCall::~FailEveryCall() { EmulatedStickyError() = cudaSuccess; }

std::unique_ptr<Backend> MakeEmulatedCudaBackend(const EmulatedCudaOptions& options) {
  return std::make_unique<EmulatedCudaBackend>(options);
}

std::unique_ptr<Backend> MakeEmulatedCudaBackend(int) {
  return MakeEmulatedCudaBackend(EmulatedCudaOptions());
}

}  // namespace carole::testing
