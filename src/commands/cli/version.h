// What this program was built with.
#pragma once

namespace carole::commands {

const char* Version();           // "0.1.0"
const char* Build();             // "0.1.0 of source 1b4f0e985197": the same for the same source
const char* BuiltCudaVersion();  // "13.0.48"; "no" without CUDA

void PrintVersion();

}  // namespace carole::commands
