// Loads libcarole_cuda.so, which contains the CUDA backend, on first use.
#include <dlfcn.h>

#include <algorithm>
#include <cctype>

#include "src/backend/backend.h"
#include "src/core/error.h"
#include "src/core/module.h"

namespace carole {
namespace {

// Returns a function that src/backend/cuda/backend.cpp exports. Throws ConfigError if the library
// or one that it needs is missing.
template <typename Function>
Function* Load(const char* name) {
  return LoadFunction<Function>(
      {.tag = "cuda",
       .library = "libcarole_cuda.so",
       .if_missing = "it was built without CUDA; use " + Option("backend", "onednn") +
                     ", or build on a machine with the CUDA toolkit and cuDNN 9",
       .dependencies = "cuDNN 9 and cuBLAS"},
      name);
}

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(const CudaOptions& options) {
  return std::unique_ptr<Backend>(
      Load<Backend*(const CudaOptions&)>("carole_make_cuda_backend")(options));
}

int CountGpus() { return Load<int()>("carole_count_gpus")(); }

std::string GpuBusId(int device) {
  std::string id;
  Load<void(int, std::string&)>("carole_gpu_bus_id")(device, id);
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return std::tolower(c); });
  return id;
}

bool HasCudaDriver() { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr; }

std::string GpuUnavailableReason() {
  if (!HasCudaDriver()) return "no GPU: the NVIDIA driver (libcuda.so.1) is not installed";
  try {
    return CountGpus() > 0 ? "" : "no GPU";
  } catch (const Error& error) {
    return std::string("no GPU: ") + error.what();
  }
}

}  // namespace carole
