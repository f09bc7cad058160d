#include "launch/machine/memory.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "launch/machine/control_groups.h"
#include "src/core/files/small_file.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

// The number behind a word: "inactive_file 4096", "MemAvailable:  1024 kB".
std::optional<int64_t> NumberBehind(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return std::nullopt;
}

std::optional<int64_t> Number(const fs::path& path) {
  std::istringstream text(ReadSmallFile(path));
  int64_t number = 0;
  return text >> number ? std::optional(number) : std::nullopt;  // "max": no limit
}

// Names of a group's files in one version of control groups.
struct Files {
  const char* limit;
  const char* used;
  const char* droppable;  // a word of memory.stat
};

void TakeSmaller(const fs::path& group, const Files& files, int64_t& least) {
  const auto limit = Number(group / files.limit), used = Number(group / files.used);
  if (!limit || !used) return;
  const int64_t droppable =
      NumberBehind(ReadSmallFile(group / "memory.stat"), files.droppable).value_or(0);
  least = std::min(least, std::max<int64_t>(*limit - *used + droppable, 0));
}

}  // namespace

int64_t AvailableMemory(const fs::path& root) {
  int64_t least =
      NumberBehind(ReadSmallFile(root / "proc/meminfo"), "MemAvailable:").value_or(0) * 1024;
  constexpr Files kVersion2{"memory.max", "memory.current", "inactive_file"};
  constexpr Files kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file"};
  ForEachControlGroup(
      root, "memory", [&](const fs::path& group) { TakeSmaller(group, kVersion2, least); },
      [&](const fs::path& group) { TakeSmaller(group, kVersion1, least); });
  return least;
}

}  // namespace carole::launch
