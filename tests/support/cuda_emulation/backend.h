// A backend that runs the kernels of the CUDA backend on the CPU (see cuda_runtime.h,
// cudnn_frontend.h and cublasLt.h in this folder).
#pragma once

#include <memory>
#include <string>

#include "src/backend/backend.h"

struct CUstream_st;

namespace carole::testing {

struct EmulatedCudaOptions {
  CUstream_st* stream = nullptr;        // runs the kernels; null: they run at once
  bool force_optional_kernels = false;  // as in CudaOptions
};
// The stream must outlive the backend.
std::unique_ptr<Backend> MakeEmulatedCudaBackend(const EmulatedCudaOptions& options);
std::unique_ptr<Backend> MakeEmulatedCudaBackend(int threads);

// Describes the last call of cuBLASLt by this thread: the type of the operands, whether each is
// transposed, the type of the result, and the epilogue. Example: "bf16 NT to f32, relu, bias".
std::string LastMatmul();

// While an object of this type lives, every CUDA call fails, as after a kernel that wrote outside
// of its memory.
class FailEveryCall {
 public:
  FailEveryCall();
  ~FailEveryCall();
  FailEveryCall(const FailEveryCall&) = delete;
  FailEveryCall& operator=(const FailEveryCall&) = delete;
};

}  // namespace carole::testing
