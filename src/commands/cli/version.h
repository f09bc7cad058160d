// The versions of this program and of the libraries that it was built with.
#pragma once

namespace carole::commands {

const char* Version();           // "MAJOR.MINOR.PATCH", from project() in CMakeLists.txt
const char* Build();             // "0.2.0 of source 1b4f0e985197"; equal sources have equal hashes
const char* BuiltCudaVersion();  // "13.0.48"; "no" without CUDA

// Prints what `carole --version` shows.
void PrintVersion();

}  // namespace carole::commands
