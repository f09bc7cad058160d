// Libraries of this program that are loaded when they are asked for, because what they need (CUDA,
// NCCL) is not on every machine.
#pragma once

#include <string>

namespace carole {

struct ModuleName {
  std::string tag;      // of errors
  std::string library;  // file name
  std::string without;  // what it means that there is no such file
  std::string needs;    // other libraries, to be named where it does not load
};

// The address of an exported function of the library, which lies beside the program or where an
// installation or a build folder keeps libraries. It stays loaded. Throws ConfigError.
void* LoadSymbol(const ModuleName& module, const char* symbol);

template <typename Function>
Function* LoadFunction(const ModuleName& module, const char* symbol) {
  return reinterpret_cast<Function*>(LoadSymbol(module, symbol));
}

}  // namespace carole
