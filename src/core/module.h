// Loading of our own shared libraries at run time. The CUDA and NCCL parts of the program are such
// libraries, because CUDA and NCCL are not installed on every machine.
#pragma once

#include <string>

namespace carole {

// One of our shared libraries, and what errors say about it.
struct LoadableModule {
  std::string tag;           // tag of the errors: "gpu" gives "[gpu] ..."
  std::string library;       // file name
  std::string if_missing;    // text of the error if the file does not exist
  std::string dependencies;  // libraries of others that the error recommends if loading fails
};

// Loads the library and returns the address of a function that it exports. The library is searched
// in the folder of the program, in the folder above it, in ../lib and in ../lib/carole: the places
// that a build, a bundle and a package use. It is never unloaded.
//
// Throws ConfigError if the file is missing, does not load, or does not export the symbol. The last
// means that it belongs to another version of the program.
void* LoadSymbol(const LoadableModule& module, const char* symbol);

// The same, with the type of the function.
template <typename Function>
Function* LoadFunction(const LoadableModule& module, const char* symbol) {
  return reinterpret_cast<Function*>(LoadSymbol(module, symbol));
}

}  // namespace carole
