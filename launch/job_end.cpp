#include "launch/job_end.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "launch/ssh.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/small_file.h"

namespace carole::launch {
namespace {

std::string NotePath(const std::string& train_dir) {
  return std::filesystem::path(train_dir) / ".job_end";
}

}  // namespace

void NoteJobEnd(const std::string& train_dir, int exit_code) {
  const int64_t now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string path = NotePath(train_dir);
  const std::string part = fmt::format("{}.{}.part", path, getpid());
  try {
    std::filesystem::create_directories(train_dir);
    WritePrivateFile(part, fmt::format("exit code {} at {}\n", exit_code, now));
    std::filesystem::rename(part, path);  // whole, or not there
  } catch (const std::exception& error) {
    LogWarning("launch", "an evaluator is not told of the end: {}", error.what());
  }
}

JobEnd::JobEnd(const std::string& train_dir)
    : path_(NotePath(train_dir)), before_(ReadSmallFile(path_)) {}

bool JobEnd::Noted() const {
  const std::string now = ReadSmallFile(path_);
  return !now.empty() && now != before_;
}

}  // namespace carole::launch
