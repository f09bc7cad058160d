#include "src/core/module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "src/core/error.h"

namespace carole {
namespace {

std::string FindModule(const LoadableModule& module) {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* subfolder : {".", "..", "../lib", "../lib/carole"}) {
    const auto path = folder / subfolder / module.library;
    if (std::filesystem::exists(path, ignored)) return path.lexically_normal().string();
  }
  throw ConfigError(fmt::format("[{}] {}: not found next to the program: {}", module.tag,
                                module.library, module.if_missing));
}

}  // namespace

void* LoadSymbol(const LoadableModule& module, const char* symbol) {
  const std::string path = FindModule(module);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw ConfigError(fmt::format(
        "[{}] {}: cannot be loaded: {}; install {} or add its folder to LD_LIBRARY_PATH",
        module.tag, path, dlerror(), module.dependencies));
  }
  void* function = dlsym(handle, symbol);
  if (function == nullptr) {
    throw ConfigError(fmt::format(
        "[{}] {}: belongs to another version of this program; reinstall carole", module.tag, path));
  }
  return function;
}

}  // namespace carole
