#include "launch/machine/cgroups.h"

#include <sstream>

#include "src/core/files/best_effort_file.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

// Visits the folder of `group` below `mount` and those of all groups above it. In a container, the
// mount may show the container's own group at its top, although `group` is a longer path. Then the
// longer paths do not exist, and visitors treat missing folders as no limit.
void VisitUpwards(const fs::path& mount, const fs::path& group, const VisitCgroup& visit) {
  for (fs::path path = group.relative_path();; path = path.parent_path()) {
    visit(mount / path);
    if (path.empty()) return;
  }
}

// Returns whether a comma list such as "cpu,cpuacct" contains the controller "cpu".
bool HasController(const std::string& controllers, const std::string& controller) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == controller) return true;
  }
  return false;
}

}  // namespace

std::string CgroupMembership(const fs::path& root) {
  return ReadFileOrEmpty(root / "proc/self/cgroup");
}

void ForEachCgroupFolder(const fs::path& root, const std::string& controller,
                         const VisitCgroup& version2, const VisitCgroup& version1) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::istringstream lines(CgroupMembership(root));
  for (std::string line; std::getline(lines, line);) {  // "ID:CONTROLLERS:PATH"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      VisitUpwards(mount, group, version2);
    } else if (HasController(controllers, controller)) {
      VisitUpwards(mount / controllers, group, version1);
      if (controllers != controller) VisitUpwards(mount / controller, group, version1);
    }
  }
}

}  // namespace carole::launch
