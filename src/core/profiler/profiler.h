// Ranges of time that NVIDIA's profilers show, such as Nsight Systems: steps, phases and
// all-reduces. They cost next to nothing unless such a profiler started the program. In builds
// without the headers of NVTX there are no ranges.
#pragma once

#include <cstdint>
#include <string>

namespace carole::profiler {

// Whether a profiler shows ranges. Ask it before you make a name.
bool IsActive();

// Begins a range, which any thread may end, and returns its id. Ranges may overlap.
uint64_t Begin(const std::string& name);
void End(uint64_t id);

// A range of the current thread. These ranges are nested.
class Scope {
 public:
  explicit Scope(const std::string& name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace carole::profiler
