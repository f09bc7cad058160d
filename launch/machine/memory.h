// How much memory this process can still allocate.
#pragma once

#include <cstdint>
#include <filesystem>

namespace carole::launch {

// Returns the available memory in bytes: MemAvailable of /proc/meminfo, or less if a cgroup of this
// process has less left below its limit. Cached file pages that the cgroup can drop count as
// available. Returns 0 if /proc/meminfo cannot be read. `root` replaces "/" in tests.
int64_t AvailableMemory(const std::filesystem::path& root = "/");

}  // namespace carole::launch
