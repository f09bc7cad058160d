#include "launch/machine/control_groups.h"

#include <sstream>

#include "src/core/files/small_file.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

// Reads `group` below `mount` and all groups above it. A container may see its own group as the
// mount's top, whatever the path says; missing folders read as no limit.
void WalkUp(const fs::path& mount, const fs::path& group, const ReadFolder& read) {
  for (fs::path path = group.relative_path();; path = path.parent_path()) {
    read(mount / path);
    if (path.empty()) return;
  }
}

// Whether "cpu,cpuacct" has "cpu".
bool Has(const std::string& controllers, const std::string& controller) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == controller) return true;
  }
  return false;
}

}  // namespace

std::string ControlGroups(const fs::path& root) { return ReadSmallFile(root / "proc/self/cgroup"); }

void ForEachControlGroup(const fs::path& root, const std::string& controller,
                         const ReadFolder& version2, const ReadFolder& version1) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::istringstream lines(ControlGroups(root));
  for (std::string line; std::getline(lines, line);) {  // "ID:CONTROLLERS:PATH"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      WalkUp(mount, group, version2);
    } else if (Has(controllers, controller)) {
      WalkUp(mount / controllers, group, version1);
      if (controllers != controller) WalkUp(mount / controller, group, version1);
    }
  }
}

}  // namespace carole::launch
