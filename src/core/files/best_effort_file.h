// Reads and writes small files that a run can do without, such as caches and reports. These
// functions never throw for a missing or unwritable file. For files that must be durable, such as
// checkpoints, use src/core/files/disk.h.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace carole {

// Returns the content of the file as far as it can be read; "" if it does not exist.
std::string ReadFileOrEmpty(const std::filesystem::path& path);

// Writes the bytes to a temporary file, path + suffix, and renames it to `path`. So readers see
// either the old content or all of the new, also after a loss of power. Returns the error if that
// fails; the old content then stays. If several processes write the same path at once, each must
// use its own `suffix`.
std::error_code ReplaceFile(const std::filesystem::path& path, std::string_view bytes,
                            std::string_view suffix = ".part");

}  // namespace carole
