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

// What a person can do about it; "" when nothing comes to mind.
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

void Sync(std::string_view tag, const std::string& path, int flags) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!file.is_open()) ThrowDiskError(tag, path, "open", errno);
  // Some network file systems have no fsync for folders and say EINVAL; their rename is durable.
  if (fsync(file.get()) != 0 && errno != EINVAL) ThrowDiskError(tag, path, "write to disk", errno);
}

}  // namespace

void ThrowDiskError(std::string_view tag, const std::string& path, std::string_view what,
                    int error) {
  throw DiskError(fmt::format("[{}] {}", tag, DiskProblem(path, what, error)));
}

std::string DiskProblem(const std::string& path, std::string_view what, int error) {
  const std::string_view hint = DiskHint(what, error);
  return fmt::format("{}: cannot {}: {}{}{}", path, what, std::generic_category().message(error),
                     hint.empty() ? "" : "; ", hint);
}

void FlushOutput() {
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

void RequireNoDevice(std::string_view tag, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type != fs::file_type::character && type != fs::file_type::block &&
      type != fs::file_type::fifo && type != fs::file_type::socket)
    return;
  throw UsageError(
      fmt::format("[{}] {}: got a device or a pipe, want a file, which takes the place of what is "
                  "there; name another",
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

void RemoveLeftovers(const std::filesystem::path& folder, const std::string& prefix) {
  std::error_code ignored;  // who writes there next is told of what is wrong with it
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("." + prefix) && name.ends_with(".tmp"))
      std::filesystem::remove(file.path(), ignored);
  }
}

}  // namespace carole
