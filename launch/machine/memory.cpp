#include "launch/machine/memory.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "launch/machine/cgroups.h"
#include "src/core/files/best_effort_file.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

// Returns the number after a word at the start of a line, as in "inactive_file 4096" or
// "MemAvailable:  1024 kB".
std::optional<int64_t> NumberAfter(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return std::nullopt;
}

std::optional<int64_t> ReadNumber(const fs::path& path) {
  std::istringstream text(ReadFileOrEmpty(path));
  int64_t number = 0;
  return text >> number ? std::optional(number) : std::nullopt;  // "max": no limit
}

// Names of files in a cgroup folder, which differ between versions 1 and 2.
struct Files {
  const char* limit;
  const char* used;
  const char* droppable;  // the key in memory.stat for cached pages that the kernel can drop
};

void TakeSmaller(const fs::path& group, const Files& files, int64_t& least) {
  const auto limit = ReadNumber(group / files.limit), used = ReadNumber(group / files.used);
  if (!limit || !used) return;
  const int64_t droppable =
      NumberAfter(ReadFileOrEmpty(group / "memory.stat"), files.droppable).value_or(0);
  least = std::min(least, std::max<int64_t>(*limit - *used + droppable, 0));
}

}  // namespace

int64_t AvailableMemory(const fs::path& root) {
  int64_t least =
      NumberAfter(ReadFileOrEmpty(root / "proc/meminfo"), "MemAvailable:").value_or(0) * 1024;
  constexpr Files kVersion2{"memory.max", "memory.current", "inactive_file"};
  constexpr Files kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file"};
  ForEachCgroupFolder(
      root, "memory", [&](const fs::path& group) { TakeSmaller(group, kVersion2, least); },
      [&](const fs::path& group) { TakeSmaller(group, kVersion1, least); });
  return least;
}

}  // namespace carole::launch
