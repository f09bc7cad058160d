// A file descriptor that closes itself, and system calls that a signal may interrupt.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace carole {

// Owns a POSIX file descriptor and closes it in the destructor. Movable. -1 means that none is
// open.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Repeats a system call until no signal interrupts it (EINTR). Returns its result.
template <typename Call>
auto RetryIfInterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace carole
