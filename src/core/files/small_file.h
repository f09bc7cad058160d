// Files that a run can do without, such as caches and reports: refusals are no errors. Those that
// must be there for good are src/core/files/disk.h's.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace carole {

// All that can be read; nothing of a file that there is not.
std::string ReadSmallFile(const std::filesystem::path& path);

// Writes aside and renames, so that readers see the old content or all of the new. The disk's
// reason where it refuses, with the old content in its place, else none. One process writes a path
// at a time, or each with its own `suffix` for the file aside.
std::error_code ReplaceSmallFile(const std::filesystem::path& path, std::string_view bytes,
                                 std::string_view suffix = ".part");

}  // namespace carole
