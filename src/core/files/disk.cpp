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
// - Phase 2 uses the descriptor that wrote the content, if it is still open. So an error of an
//   earlier write to the disk cannot be missed.
// - Temporary names begin with a dot, so that no reader takes such a file for a checkpoint. A file
//   of a killed process stays until the next writer of the same file on this host
//   (RemoveAbandonedTemporaryFiles()), or the next run that locks the folder
//   (RemoveTemporaryFiles()) removes it.
// - A new folder is a name in its parent. MakeFolder() syncs the parent before anything is written
//   to the new folder. An earlier process may have been killed in between. So MakeFolder() also
//   syncs the parent of a folder that exists.
//
// Files that belong together, such as data and index, are committed by CommitTogether() (bytes.h).
// tests/durability checks every state that a loss of power can leave.
#include "src/core/files/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/host_name.h"
#include "src/core/text/parse_number.h"

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

FileDescriptor OpenPath(const std::string& path, int flags) {
  return FileDescriptor(
      RetryIfInterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC, 0666); }));
}

// Writes the file or folder to the disk (fsync).
void Sync(std::string_view tag, const std::string& path, int flags) {
  const FileDescriptor file = OpenPath(path, O_RDONLY | flags);
  if (!file.is_open()) ThrowDiskError(tag, path, "open", errno);
  SyncFile(tag, path, file.get());
}

std::string FolderOf(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return folder.empty() ? "." : folder.string();
}

// Makes the names in an existing folder durable, as far as this user may.
void SyncFolderIfPossible(const std::string& folder) {
  const FileDescriptor file = OpenPath(folder, O_RDONLY | O_DIRECTORY);
  if (file.is_open()) RetryIfInterrupted([&] { return fsync(file.get()); });
}

// Makes the folder after those above it. `whole` is the path for errors.
void MakeFolders(std::string_view tag, const std::filesystem::path& path,
                 const std::string& whole) {
  std::error_code error;
  const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();
  if (folder.empty() || folder == folder.root_path()) return;
  if (std::filesystem::is_directory(folder, error)) {
    SyncFolderIfPossible(FolderOf(folder));
    return;
  }
  MakeFolders(tag, folder.parent_path(), whole);
  if (RetryIfInterrupted([&] { return mkdir(folder.c_str(), 0777); }) != 0) {
    const int reason = errno;
    // Another process may have made it since.
    if (reason != EEXIST || !std::filesystem::is_directory(folder, error))
      ThrowDiskError(tag, whole, "make the folder", reason == EEXIST ? ENOTDIR : reason);
  }
  const FileDescriptor parent = OpenPath(FolderOf(folder), O_RDONLY | O_DIRECTORY);
  if (!parent.is_open() && errno == EACCES) return;  // such a parent cannot be synced
  if (!parent.is_open()) ThrowDiskError(tag, FolderOf(folder), "open", errno);
  SyncFile(tag, FolderOf(folder), parent.get());
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
    FileDescriptor file = OpenPath(path, O_WRONLY | O_CREAT | O_EXCL);
    if (file.is_open()) return file;
    if (errno != EEXIST) ThrowDiskError(tag, path, "create", errno);
  }
}

void MakeFolder(std::string_view tag, const std::string& path) { MakeFolders(tag, path, path); }

std::vector<std::string> NamesIn(const std::filesystem::path& folder, std::error_code& error) {
  std::vector<std::string> names;
  do {
    names.clear();
    std::filesystem::directory_iterator it(folder, error);
    for (; !error && it != std::filesystem::directory_iterator(); it.increment(error))
      names.push_back(it->path().filename().string());
  } while (error == std::errc::interrupted);
  return names;
}

int WriteAt(int file, std::string_view bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        RetryIfInterrupted([&] { return pwrite(file, bytes.data(), bytes.size(), offset); });
    if (wrote <= 0) return wrote < 0 ? errno : EIO;
    bytes.remove_prefix(static_cast<size_t>(wrote));
    offset += wrote;
  }
  return 0;
}

namespace {

// Whether a path leads to an open file of a process, as /dev/stdout does. A rename would replace
// the link.
bool LeadsToOpenFile(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMaxLinks = 40;  // as in Linux
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  for (int links = 0; links < kMaxLinks; ++links) {
    at = fs::weakly_canonical(at.parent_path(), error) / at.filename();
    if (at.string().starts_with("/proc/") && at.string().find("/fd/") != std::string::npos)
      return true;
    if (!fs::is_symlink(at, error)) return false;
    at = at.parent_path() / fs::read_symlink(at, error);
  }
  return false;
}

}  // namespace

void RejectSpecialFile(std::string_view tag, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type != fs::file_type::character && type != fs::file_type::block &&
      type != fs::file_type::fifo && type != fs::file_type::socket && !LeadsToOpenFile(path))
    return;
  throw UsageError(
      fmt::format("[{}] {}: not a regular file: got a device, a pipe or an open file, want a file "
                  "that may be replaced; choose another path",
                  tag, path));
}

void WriteWholeFile(const std::filesystem::path& path, std::string_view bytes) {
  const std::unique_ptr<Sink> file = CreateFile(path);
  file->Append(bytes);
  file->Commit();
}

void SyncFile(std::string_view tag, const std::string& path, int file) {
  // Some network file systems have no fsync for folders and return EINVAL. Their rename is durable.
  if (RetryIfInterrupted([&] { return fsync(file); }) != 0 && errno != EINVAL)
    ThrowDiskError(tag, path, "write to disk", errno);
}

void CommitFile(std::string_view tag, const std::string& temporary, const std::string& path) {
  Sync(tag, temporary, 0);
  CommitSyncedFile(tag, temporary, path);
}

void CommitSyncedFile(std::string_view tag, const std::string& temporary, const std::string& path) {
  if (RetryIfInterrupted([&] { return rename(temporary.c_str(), path.c_str()); }) != 0)
    ThrowDiskError(tag, path, "rename", errno);
  Sync(tag, FolderOf(path), O_DIRECTORY);
}

void RemoveFileDurably(std::string_view tag, const std::string& path) {
  if (RetryIfInterrupted([&] { return unlink(path.c_str()); }) != 0) {
    if (errno == ENOENT) return;
    ThrowDiskError(tag, path, "remove", errno);
  }
  Sync(tag, FolderOf(path), O_DIRECTORY);
}

std::string TemporaryNameOf(const std::filesystem::path& path) {
  static std::atomic<int> counter{0};
  return path.parent_path() /
         fmt::format(".{}.{}-{}-{}.tmp", path.filename().string(), HostName(), getpid(), counter++);
}

void RemoveAbandonedTemporaryFiles(const std::filesystem::path& path) {
  const std::string start = fmt::format(".{}.{}-", path.filename().string(), HostName());
  std::error_code ignored;
  for (const std::string& name : NamesIn(FolderOf(path), ignored)) {
    if (!name.starts_with(start) || !name.ends_with(".tmp")) continue;
    const std::string_view rest = std::string_view(name).substr(start.size());
    const auto process = ParseNumber<pid_t>(rest.substr(0, rest.find('-')));
    if (process && *process > 0 && kill(*process, 0) != 0 && errno == ESRCH)
      std::filesystem::remove(path.parent_path() / name, ignored);
  }
}

void RemoveTemporaryFiles(const std::filesystem::path& folder, const std::string& prefix) {
  std::error_code ignored;  // if the folder has a problem, the next write reports it
  for (const std::string& name : NamesIn(folder, ignored)) {
    if (name.starts_with("." + prefix) && name.ends_with(".tmp"))
      std::filesystem::remove(folder / name, ignored);
  }
}

}  // namespace carole
