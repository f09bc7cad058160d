// The CUDA backend's own kernels and its products as a backend that runs on the CPU (see
// cuda_runtime.h and cublasLt.h here). Convolutions, which are cuDNN's, are not there, or another
// backend's.
#pragma once

#include <memory>
#include <string>

#include "src/backend/backend.h"

struct CUstream_st;

namespace carole::testing {

std::unique_ptr<Backend> MakeEmulatedCudaBackend(int threads);
// Kernels go to the stream, which outlives it; null: they run at once.
std::unique_ptr<Backend> MakeEmulatedCudaBackend(std::unique_ptr<Backend> libraries,
                                                 CUstream_st* stream = nullptr);

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
