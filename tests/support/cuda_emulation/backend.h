// The CUDA backend's kernels as a backend that runs on the CPU (see cuda_runtime.h,
// cudnn_frontend.h and cublasLt.h here).
#pragma once

#include <memory>
#include <string>

#include "src/backend/backend.h"

struct CUstream_st;

namespace carole::testing {

struct EmulatedCudaOptions {
  CUstream_st* stream = nullptr;  // of the kernels; null: they run at once
  bool takes_optional = false;    // as in CudaOptions
};
// The stream outlives it.
std::unique_ptr<Backend> MakeEmulatedCudaBackend(const EmulatedCudaOptions& options);
std::unique_ptr<Backend> MakeEmulatedCudaBackend(int threads);

// How the last product was asked of cuBLASLt: operands' type, whether each is transposed, the
// result's type and what is done to it, as in "bf16 NT to f32, relu, bias".
std::string LastProduct();

// Lets every call of CUDA's fail while it lives, as after a kernel that wrote where it must not.
class FailEveryCall {
 public:
  FailEveryCall();
  ~FailEveryCall();
  FailEveryCall(const FailEveryCall&) = delete;
  FailEveryCall& operator=(const FailEveryCall&) = delete;
};

}  // namespace carole::testing
