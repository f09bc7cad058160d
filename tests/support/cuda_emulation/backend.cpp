#include "tests/support/cuda_emulation/backend.h"

#include "src/backend/cuda/cuda.h"
#include "src/backend/cuda/launch.h"

namespace carole {
namespace cuda {

void Check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw DeviceError(call);
}

}  // namespace cuda

namespace testing {
namespace {

class EmulatedCudaBackend : public Backend {
 public:
  EmulatedCudaBackend() { device_.numbers = &numbers_; }

  std::string_view name() const override { return "emulated_cuda"; }
  int threads() const override { return 1; }
  bool Supports(const OpSpec& spec) const override {
    return cuda::FindOwnMaker(spec) != nullptr && cuda::InFp32(spec);
  }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    CAROLE_CHECK(Supports(spec), "no emulated kernel for {}", Name(spec.kind));
    return cuda::FindOwnMaker(spec)(spec, device_);
  }
  void BeginRun(const RunContext& context) const override { numbers_ = cuda::RunNumbers(context); }

 private:
  mutable cuda::RunNumbers numbers_;
  cuda::Device device_;
};

}  // namespace

std::unique_ptr<Backend> MakeEmulatedCudaBackend(int) {
  return std::make_unique<EmulatedCudaBackend>();
}

}  // namespace testing
}  // namespace carole
