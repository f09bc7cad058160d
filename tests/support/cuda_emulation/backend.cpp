#include "tests/support/cuda_emulation/backend.h"

#include <cublasLt.h>

#include "src/backend/cuda/arena_math.h"
#include "src/backend/cuda/cuda.h"
#include "src/backend/cuda/launch.h"

namespace carole::testing {
namespace {

class EmulatedCudaBackend : public Backend {
 public:
  EmulatedCudaBackend(std::unique_ptr<Backend> libraries, cudaStream_t stream)
      : libraries_(std::move(libraries)) {
    device_.numbers = &numbers_;
    device_.stream = stream;
  }

  std::string_view name() const override { return "emulated_cuda"; }
  int threads() const override { return 1; }
  void SetPrecision(Precision precision) override {
    device_.tf32 = precision == Precision::kTf32;
    activation_dtype_ = ActivationType(precision);
    if (libraries_ != nullptr) libraries_->SetPrecision(precision);
  }
  bool Supports(const OpSpec& spec) const override {
    return IsOwn(spec) || (IsLibrarys(spec) && libraries_->Supports(spec));
  }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    if (IsOwn(spec)) return cuda::FindMakerWithoutCudnn(spec)(spec, device_);
    CAROLE_CHECK(IsLibrarys(spec), "no emulated kernel for {}", Name(spec.kind));
    return libraries_->MakeKernel(spec);
  }
  void BeginRun(const RunContext& context) const override {
    EmulatedPush(device_.stream, [this, now = cuda::RunNumbers(context)] { numbers_ = now; });
  }
  const ArenaMath* arena_math() const override { return math_.get(); }

 private:
  static bool IsOwn(const OpSpec& spec) {
    return cuda::FindMakerWithoutCudnn(spec) != nullptr && cuda::HasTypes(spec);
  }
  // As the CUDA backend has it: in no other types.
  bool IsLibrarys(const OpSpec& spec) const {
    return libraries_ != nullptr && cuda::FindMakerWithoutCudnn(spec) == nullptr &&
           cuda::HasTypes(spec);
  }

  const std::unique_ptr<Backend> libraries_;
  mutable cuda::RunNumbers numbers_;
  cuda::Device device_;
  const std::unique_ptr<ArenaMath> math_ = cuda::MakeArenaMath(device_);
};

}  // namespace

std::string LastProduct() { return EmulatedLastProduct(); }

FailEveryCall::FailEveryCall() { EmulatedStickyError() = 700; }
FailEveryCall::~FailEveryCall() { EmulatedStickyError() = cudaSuccess; }

std::unique_ptr<Backend> MakeEmulatedCudaBackend(int) {
  return std::make_unique<EmulatedCudaBackend>(nullptr, nullptr);
}

std::unique_ptr<Backend> MakeEmulatedCudaBackend(std::unique_ptr<Backend> libraries,
                                                 CUstream_st* stream) {
  return std::make_unique<EmulatedCudaBackend>(std::move(libraries), stream);
}

}  // namespace carole::testing
