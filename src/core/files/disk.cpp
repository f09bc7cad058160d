// What "durable" means here.
//
// A run can be killed, and a machine can lose power, at any moment. Nobody may then find half a
// checkpoint. So each file that matters is written by CreateFile() (bytes.h) and CommitFile() in
// four phases. For a checkpoint RUN/model.ckpt-100.h5:
//
//   phase                             if power is lost right after this phase, RUN contains
//   1. write the temporary file       a part of .model.ckpt-100.h5.HOST-PID-0.tmp
//   2. fsync the temporary file       all of .model.ckpt-100.h5.HOST-PID-0.tmp
//   3. rename it                      the temporary name or model.ckpt-100.h5, with all its content
//   4. fsync the folder               model.ckpt-100.h5
//
// - Phase 2 must come before phase 3. Without it, the file system may write the new name before the
//   content. After a loss of power, the name would then refer to an empty file.
// - The temporary file is in the same folder, because rename() is atomic only within a file system.
//   An old file of the same name exists, complete, until the new one replaces it.
// - Phase 4 is needed because a name is content of the folder. "Durable" means that phase 4 has
//   ended: CommitFile() returns only then.
// - Temporary names begin with a dot, so that no reader takes such a file for a checkpoint. A file
//   of a killed process stays until the next run that locks the folder removes it
//   (RemoveTemporaryFiles()).
#include "src/core/files/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "src/core/error.h"
#include "src/core/files/bytes.h"

namespace carole {
namespace {

// Returns what the user can do about the error; "" if there is no advice.
std::string_view DiskHint(std::string_view what, int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another folder";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f)";
    case EROFS:
      return "make the folder writable or choose another one";
    case EACCES:
    case EPERM:
      return "give this user the right to it, or choose another path";
    case ENOENT:
    case ENOTDIR:
      return what == "create" || what == "rename" || what.starts_with("make")
                 ? "correct the path, or make its folder first"
                 : "correct the path";
    case ENAMETOOLONG:
      return "choose a shorter name";
    case EMFILE:
      return "raise ulimit -n";
    case EIO:
      return "the disk is failing: see dmesg";
    default:
      return "";
  }
}

// Writes the file or folder to the disk (fsync).
void Sync(std::string_view tag, const std::string& path, int flags) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!file.is_open()) ThrowDiskError(tag, path, "open", errno);
  // Some network file systems have no fsync for folders and return EINVAL. Their rename is durable.
  if (fsync(file.get()) != 0 && errno != EINVAL) ThrowDiskError(tag, path, "write to disk", errno);
}

}  // namespace

void ThrowDiskError(std::string_view tag, const std::string& path, std::string_view what,
                    int error) {
  throw DiskError(fmt::format("[{}] {}", tag, DescribeDiskError(path, what, error)));
}

std::string DescribeDiskError(const std::string& path, std::string_view what, int error) {
  const std::string_view hint = DiskHint(what, error);
  return fmt::format("{}: cannot {}: {}{}{}", path, what, std::generic_category().message(error),
                     hint.empty() ? "" : "; ", hint);
}

void FlushStdout() {
  if (std::fflush(stdout) != 0 && errno != EPIPE)
    ThrowDiskError("output", "standard output", "write", errno);
}

FileDescriptor CreateNewFile(std::string_view tag, const std::function<std::string()>& next_name,
                             std::string& path) {
  for (;;) {
    path = next_name();
    FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.is_open()) return file;
    if (errno != EEXIST) ThrowDiskError(tag, path, "create", errno);
  }
}

void MakeFolder(std::string_view tag, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) ThrowDiskError(tag, path, "make the folder", error.value());
}

void RejectSpecialFile(std::string_view tag, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type != fs::file_type::character && type != fs::file_type::block &&
      type != fs::file_type::fifo && type != fs::file_type::socket)
    return;
  throw UsageError(
      fmt::format("[{}] {}: not a regular file: got a device or a pipe, want a file that may be "
                  "replaced; choose another path",
                  tag, path));
}

void WriteWholeFile(const std::filesystem::path& path, std::string_view bytes) {
  const std::unique_ptr<Sink> file = CreateFile(path);
  file->Append(bytes);
  file->Commit();
}

void CommitFile(std::string_view tag, const std::string& temporary, const std::string& path) {
  Sync(tag, temporary, 0);
  if (rename(temporary.c_str(), path.c_str()) != 0) ThrowDiskError(tag, path, "rename", errno);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  Sync(tag, folder.empty() ? "." : folder.string(), O_DIRECTORY);
}

void RemoveTemporaryFiles(const std::filesystem::path& folder, const std::string& prefix) {
  std::error_code ignored;  // if the folder has a problem, the next write reports it
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("." + prefix) && name.ends_with(".tmp"))
      std::filesystem::remove(file.path(), ignored);
  }
}

}  // namespace carole
