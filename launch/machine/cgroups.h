// The control groups (cgroups, version 1 and 2) of this process, which limit its CPU time and
// memory.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace carole::launch {

// Returns the text of /proc/self/cgroup. Processes with the same text share all limits. `root`
// replaces
// "/" in tests.
std::string CgroupMembership(const std::filesystem::path& root = "/");

// Calls a visitor with each folder of a cgroup that may limit this process, from the process's own
// group up to the top. `version2` gets the folders of cgroup v2. `version1` gets the folders of
// cgroup v1 in the hierarchy of `controller` ("cpu" or "memory"). A folder may not exist. `root`
// replaces "/" in tests.
using VisitCgroup = std::function<void(const std::filesystem::path& folder)>;
void ForEachCgroupFolder(const std::filesystem::path& root, const std::string& controller,
                         const VisitCgroup& version2, const VisitCgroup& version1);

}  // namespace carole::launch
