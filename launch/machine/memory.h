// How much memory this process can still get.
#pragma once

#include <cstdint>
#include <filesystem>

namespace carole::launch {

// Bytes: what the machine has available (/proc/meminfo), or less where a control group of this
// process has less left under its limit; file pages that the group can drop count as free. 0 when
// nothing can be read. `root` stands in for / in tests.
int64_t AvailableMemory(const std::filesystem::path& root = "/");

}  // namespace carole::launch
