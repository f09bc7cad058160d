#include "src/core/files/run_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "src/core/error.h"
#include "src/core/host_name.h"
#include "src/core/log.h"

namespace carole {
namespace {

constexpr char kLockTag[] = "io.run_lock";

// Returns the first line of the lock file.
std::string ReadHolder(int file) {
  std::array<char, 512> text{};
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  const std::string_view holder(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  const std::string_view line = holder.substr(0, holder.find('\n'));
  return line.empty() ? "another process" : std::string(line);
}

std::string LockPath(const std::string& folder) {
  return (std::filesystem::path(folder) / ".lock").string();
}

void WriteHolder(int file, const std::string& path, const std::string& holder) {
  if (RetryIfInterrupted([&] { return ftruncate(file, 0); }) != 0)
    ThrowDiskError(kLockTag, path, "write", errno);
  if (const int error = WriteAt(file, holder + "\n", 0))
    ThrowDiskError(kLockTag, path, "write", error);
}

}  // namespace

RunLock::RunLock(const std::string& folder, OnConflict on_conflict)
    : folder_(folder),
      holder_(fmt::format("process {} on {} since {:%Y-%m-%dT%H:%M:%SZ}", getpid(), HostName(),
                          fmt::gmtime(std::time(nullptr)))) {
  constexpr std::chrono::milliseconds kPoll{200};
  const std::string path = LockPath(folder);
  file_ = FileDescriptor(
      RetryIfInterrupted([&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); }));
  if (!file_.is_open()) ThrowDiskError(kLockTag, path, "create", errno);
  for (bool told = false; flock(file_.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      LogWarning(kLockTag,
                 "{}: this file system does not support locks ({}); make sure that only one run "
                 "writes this folder",
                 folder, std::strerror(errno));
      break;
    }
    const std::string what =
        fmt::format("{}: is being written by another run: {}", folder, ReadHolder(file_.get()));
    if (on_conflict == OnConflict::kThrow)
      throw ConfigError(
          fmt::format("[{}] {}; stop that one or choose another folder", kLockTag, what));
    if (!std::exchange(told, true)) LogInfo(kLockTag, "{}; waiting for it", what);
    std::this_thread::sleep_for(kPoll);
  }
  WriteHolder(file_.get(), path, holder_);
}

// Compares the content of the lock file, not its inode, because on some file systems the inode
// number of a file changes.
void RunLock::RequireHeld() const {
  const FileDescriptor file(
      RetryIfInterrupted([&] { return open(LockPath(folder_).c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!file.is_open() && errno != ENOENT)
    ThrowDiskError(kLockTag, LockPath(folder_), "open", errno);
  if (file.is_open() && ReadHolder(file.get()) == holder_) return;
  throw ConfigError(fmt::format(
      "[{}] {}: no longer locked by this run: the folder or its .lock was moved or removed; now "
      "locked by {}; give each run its own folder",
      kLockTag, folder_, file.is_open() ? ReadHolder(file.get()) : "nobody"));
}

}  // namespace carole
