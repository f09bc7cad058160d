// Finds the unfinished files of a killed program. src/core/files/disk.h says how it writes files.
#pragma once

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

namespace carole::testing {

// Returns the unfinished files in the folder and its subfolders.
inline std::vector<std::string> UnfinishedFilesIn(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (name.ends_with(".tmp") || name.ends_with(".part")) found.push_back(file.path().string());
  }
  return found;
}

// Renames unfinished files so that their process cannot exist. carole keeps those of a running
// process, and another process may have got the number of the killed one by now.
inline void ForgetProcessesOfFilesIn(const std::string& folder) {
  static const std::regex kProcess(R"(-\d+(-\d+\.tmp)$)");
  for (const std::string& path : UnfinishedFilesIn(folder)) {
    const std::string renamed = std::regex_replace(path, kProcess, "-2147483647$1");
    std::filesystem::rename(path, renamed);
  }
}

}  // namespace carole::testing
