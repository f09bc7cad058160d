// Durable writes, and errors of the file system in words. disk.cpp explains what durable means.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "src/core/files/file_descriptor.h"

namespace carole {

// In this file, `tag` is the tag of errors, and `what` is what failed, as an infinitive: "open",
// "make the folder". `error` is a value of errno.

// Returns "PATH: cannot WHAT: REASON; HINT". The hint says what the user can do; it may be missing.
std::string DescribeDiskError(const std::string& path, std::string_view what, int error);

// Throws DiskError with that text after "[tag] ".
[[noreturn]] void ThrowDiskError(std::string_view tag, const std::string& path,
                                 std::string_view what, int error);

// Writes the buffer of standard output. Throws DiskError if that fails. It is no error if the
// reader has closed the pipe, as `| head` does.
void FlushStdout();

// Creates a file and returns it, open for writing. Calls `next_name` until it returns a name that
// does not exist yet, and stores that name in `path`. Names can be taken by files of a killed
// process: a restarted container has the same host name and process IDs. Throws DiskError.
FileDescriptor CreateNewFile(std::string_view tag, const std::function<std::string()>& next_name,
                             std::string& path);

// Creates the folder and those above it, if they do not exist. Throws DiskError.
void MakeFolder(std::string_view tag, const std::string& path);

// Writes a file with this content, durably (CreateFile() of src/core/files/bytes.h). Throws
// DiskError.
void WriteWholeFile(const std::filesystem::path& path, std::string_view bytes);

// Throws UsageError if `path` is a device, a pipe or a socket. Writers call this first, because
// their new file would replace it.
void RejectSpecialFile(std::string_view tag, const std::string& path);

// Renames the file `temporary` to `path` in the same folder and makes content and name durable. A
// file that has this name already is replaced atomically. Blocks until everything is on the disk.
// Throws DiskError.
void CommitFile(std::string_view tag, const std::string& temporary, const std::string& path);

// Removes the temporary files in `folder` that killed processes left behind, for target names that
// begin with `prefix`. Call it only while you hold the lock of the folder (run_lock.h), because it
// also removes temporary files that are being written. Ignores errors.
void RemoveTemporaryFiles(const std::filesystem::path& folder, const std::string& prefix);

}  // namespace carole
