#include "launch/job/job_end.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "src/core/files/small_file.h"
#include "src/core/log.h"

namespace carole::launch {
namespace {

std::string NotePath(const std::string& train_dir) {
  return std::filesystem::path(train_dir) / ".job_end";
}

}  // namespace

void NoteRanksEnd(const GetVariable& get) {
  const char* path = get(kRanksEnd);
  const auto place = path == nullptr ? std::nullopt : FindRankPlacement(get);
  if (!place || place->rank != 0) return;
  if (const std::error_code error = ReplaceSmallFile(path, ""))
    LogWarning("launch",
               "the job ended well, but who launched it is not told so and takes it for a lost "
               "machine: {}: cannot be written: {}",
               path, error.message());
}

void NoteJobEnd(const std::string& train_dir, int exit_code) {
  const int64_t now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string path = NotePath(train_dir);
  std::error_code ignored;
  std::filesystem::create_directories(train_dir, ignored);
  const std::error_code error = ReplaceSmallFile(
      path, fmt::format("exit code {} at {}\n", exit_code, now), fmt::format(".{}.part", getpid()));
  if (error)
    LogWarning("launch", "an evaluator is not told of the end: {}: cannot be written: {}", path,
               error.message());
}

JobEnd::JobEnd(const std::string& train_dir)
    : path_(NotePath(train_dir)), before_(ReadSmallFile(path_)) {}

bool JobEnd::Noted() const {
  const std::string now = ReadSmallFile(path_);
  return !now.empty() && now != before_;
}

}  // namespace carole::launch
