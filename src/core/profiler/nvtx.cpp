#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "src/core/profiler/profiler.h"

namespace carole::profiler {

// Profilers announce themselves by this variable, from which NVTX loads them.
bool IsActive() {
  static const bool is_active = std::getenv("NVTX_INJECTION64_PATH") != nullptr;
  return is_active;
}

uint64_t Begin(const std::string& name) { return nvtxRangeStartA(name.c_str()); }
void End(uint64_t id) { nvtxRangeEnd(id); }

Scope::Scope(const std::string& name) { nvtxRangePushA(name.c_str()); }
Scope::~Scope() { nvtxRangePop(); }

}  // namespace carole::profiler
