#include "src/core/files/best_effort_file.h"

#include <fcntl.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "src/core/files/disk.h"

namespace carole {
namespace {

// Writes the bytes to a file and to the disk. Returns 0, or a value of errno.
int WriteAndSync(const std::string& path, std::string_view bytes) {
  const FileDescriptor file(RetryIfInterrupted(
      [&] { return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); }));
  if (!file.is_open()) return errno;
  if (const int error = WriteAt(file.get(), bytes, 0)) return error;
  const bool synced = RetryIfInterrupted([&] { return fsync(file.get()); }) == 0;
  return synced || errno == EINVAL ? 0 : errno;  // EINVAL: this file system cannot sync
}

}  // namespace

std::string ReadFileOrEmpty(const std::filesystem::path& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::error_code ReplaceFile(const std::filesystem::path& path, std::string_view bytes,
                            std::string_view suffix) {
  const std::string part = path.string() + std::string(suffix);
  std::error_code error(WriteAndSync(part, bytes), std::generic_category());
  if (!error && RetryIfInterrupted([&] { return rename(part.c_str(), path.c_str()); }) != 0)
    error = {errno, std::generic_category()};
  std::error_code ignored;
  if (error) std::filesystem::remove(part, ignored);
  return error;
}

}  // namespace carole
