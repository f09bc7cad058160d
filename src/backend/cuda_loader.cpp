// Loads libcarole_cuda.so.
#include <dlfcn.h>

#include "src/backend/backend.h"
#include "src/core/error.h"
#include "src/core/module.h"

namespace carole {
namespace {

// What src/backend/cuda/backend.cpp exports.
template <typename Function>
Function* Load(const char* name) {
  return LoadFunction<Function>(
      {.tag = "cuda",
       .library = "libcarole_cuda.so",
       .without = "it was built without CUDA; use --backend=onednn, or build where the CUDA "
                  "toolkit and cuDNN 9 are",
       .needs = "cuDNN 9 and cuBLAS"},
      name);
}

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(const CudaOptions& options) {
  return std::unique_ptr<Backend>(
      Load<Backend*(const CudaOptions&)>("carole_make_cuda_backend")(options));
}

int CountGpus() { return Load<int()>("carole_count_gpus")(); }

bool HasCudaDriver() { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr; }

std::string WhyNoGpu() {
  if (!HasCudaDriver()) return "no GPU: this machine has no driver of NVIDIA's (libcuda.so.1)";
  try {
    return CountGpus() > 0 ? "" : "no GPU";
  } catch (const Error& error) {
    return std::string("no GPU: ") + error.what();
  }
}

}  // namespace carole
