// Durable writes, and errors of the file system in words. disk.cpp explains what durable means.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

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

// Creates the folder and those above it, if they do not exist. The names of new folders are durable
// when this returns. Throws DiskError.
void MakeFolder(std::string_view tag, const std::string& path);

// Returns the names of the files and folders in a folder. If it cannot be read to its end, sets
// `error` and returns those that were read.
std::vector<std::string> NamesIn(const std::filesystem::path& folder, std::error_code& error);

// Writes all bytes at this offset, even if the system takes fewer at a time or a signal interrupts
// it. Returns 0, or a value of errno.
int WriteAt(int file, std::string_view bytes, int64_t offset);

// Writes a file with this content, durably (CreateFile() of src/core/files/bytes.h). Throws
// DiskError.
void WriteWholeFile(const std::filesystem::path& path, std::string_view bytes);

// Throws UsageError if `path` is a device, a pipe, a socket or a link to an open file, as
// /dev/stdout is. Writers call this first, because their new file would replace it.
void RejectSpecialFile(std::string_view tag, const std::string& path);

// Writes the content of an open file to the disk (fsync). `path` is for errors. Throws DiskError.
void SyncFile(std::string_view tag, const std::string& path, int file);

// Renames the file `temporary` to `path` in the same folder and makes content and name durable. A
// file that has this name already is replaced atomically. Blocks until everything is on the disk.
// Throws DiskError.
void CommitFile(std::string_view tag, const std::string& temporary, const std::string& path);

// Does the same as CommitFile() for a file whose content is durable already (SyncFile()).
void CommitSyncedFile(std::string_view tag, const std::string& temporary, const std::string& path);

// Removes the file, if it exists, and makes that durable. Throws DiskError.
void RemoveFileDurably(std::string_view tag, const std::string& path);

// Removes the temporary files in `folder` that killed processes left behind, for target names that
// begin with `prefix`. Call it only while you hold the lock of the folder (run_lock.h), because it
// also removes temporary files that are being written. Ignores errors.
void RemoveTemporaryFiles(const std::filesystem::path& folder, const std::string& prefix);

// Returns a new name in the folder of `path` for a file that will be renamed to `path`. No other
// process or thread on any host uses it at the same time. It begins with a dot.
std::string TemporaryNameOf(const std::filesystem::path& path);

// Removes the temporary files for `path` of processes that ran on this host and have ended. It
// needs no lock. Ignores errors.
void RemoveAbandonedTemporaryFiles(const std::filesystem::path& path);

}  // namespace carole
