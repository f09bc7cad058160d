#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "src/backend/backend.h"
#include "src/core/error.h"

namespace carole {
namespace {

constexpr const char* kLibrary = "libcarole_cuda.so";

// What the library exports (src/backend/cuda/backend.cpp).
struct Library {
  Backend* (*make)(const CudaOptions& options) = nullptr;
  int (*count_gpus)() = nullptr;
};

// Beside the program, or where an installation or a build folder keeps libraries and tests.
std::string Find() {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* place : {".", "..", "../lib"}) {
    const auto path = folder / place / kLibrary;
    if (std::filesystem::exists(path, ignored)) return path.lexically_normal().string();
  }
  throw ConfigError(
      fmt::format("[cuda] {}: not found beside the program: it was built without CUDA; use "
                  "--backend=onednn, or build where the CUDA toolkit and cuDNN 9 are",
                  kLibrary));
}

Library Load() {
  const std::string path = Find();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw ConfigError(fmt::format(
        "[cuda] {}: cannot be loaded: {}; install that library (cuDNN 9, cuBLAS) or add "
        "its folder to LD_LIBRARY_PATH",
        path, dlerror()));
  }
  Library library;
  library.make =
      reinterpret_cast<decltype(library.make)>(dlsym(handle, "carole_make_cuda_backend"));
  library.count_gpus =
      reinterpret_cast<decltype(library.count_gpus)>(dlsym(handle, "carole_count_gpus"));
  if (library.make == nullptr || library.count_gpus == nullptr) {
    throw ConfigError(fmt::format("[cuda] {}: belongs to another version of this program", path));
  }
  return library;
}

const Library& Loaded() {
  static const Library library = Load();
  return library;
}

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(const CudaOptions& options) {
  return std::unique_ptr<Backend>(Loaded().make(options));
}

int CountGpus() { return Loaded().count_gpus(); }

std::string CudaTrouble() {
  std::error_code ignored;
  const auto is_there = [&](const char* path) { return std::filesystem::exists(path, ignored); };
  // Saves loading hundreds of megabytes. Windows' subsystem for Linux has the second.
  if (!is_there("/proc/driver/nvidia/version") && !is_there("/dev/dxg"))
    return "no GPU: this machine has no driver of NVIDIA's";
  try {
    return CountGpus() > 0 ? "" : "no GPU";
  } catch (const Error& error) {
    return std::string("no GPU: ") + error.what();
  }
}

}  // namespace carole
