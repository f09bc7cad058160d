// What the operating system is asked for when a file must be there for good, and its refusals in
// words.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "src/core/files/file_descriptor.h"

namespace carole {

// Throws DiskError `[tag] path: cannot <what>: <words of error>; <hint>`.
// "PATH: cannot WHAT: REASON; what to do", of an errno.
std::string DiskProblem(const std::string& path, std::string_view what, int error);

[[noreturn]] void ThrowDiskError(std::string_view tag, const std::string& path,
                                 std::string_view what, int error);

// Writes what standard output still holds back. Throws DiskError; but a reader that has seen enough
// (`| head`) is no error.
void FlushOutput();

// A new file, open for writing; `path` becomes the first of the names that `next_name` gives which
// is free: a process that was killed may have left others, where containers begin anew with the
// same host and number. Throws DiskError.
FileDescriptor CreateNewFile(std::string_view tag, const std::function<std::string()>& next_name,
                             std::string& path);

// With the folders above it; nothing when it is there. Throws DiskError.
void MakeFolder(std::string_view tag, const std::string& path);

// A file of these bytes, by way of CreateFile() (src/core/files/bytes.h). Throws DiskError.
void WriteWholeFile(const std::filesystem::path& path, std::string_view bytes);

// Throws UsageError where a device or a pipe has that name, which a new file would replace.
void RequireNoDevice(std::string_view tag, const std::string& path);

// Blocks until the content of `temporary` is on the disk, renames it to `path` (same folder; an old
// file of that name is replaced in one go) and makes the new name durable. Throws DiskError.
void CommitFile(std::string_view tag, const std::string& temporary, const std::string& path);

// Removes the temporary files that killed processes left of CreateFile() (bytes.h) in `folder`, for
// names that begin with `prefix`. Only for who holds the folder's lock: files being written go,
// too.
void RemoveLeftovers(const std::filesystem::path& folder, const std::string& prefix);

}  // namespace carole
