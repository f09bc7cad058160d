// The limits that control groups (cgroups, version 1 and 2) set to this process. `root` stands in
// for / in tests.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace carole::launch {

// The text of /proc/self/cgroup: the same for processes that share all limits.
std::string ControlGroups(const std::filesystem::path& root = "/");

// Calls one of these with each folder that may limit this process, from its own group to the top:
// groups of version 2, and those of version 1 that have `controller` ("cpu", "memory").
using ReadFolder = std::function<void(const std::filesystem::path& folder)>;
void ForEachControlGroup(const std::filesystem::path& root, const std::string& controller,
                         const ReadFolder& version2, const ReadFolder& version1);

}  // namespace carole::launch
