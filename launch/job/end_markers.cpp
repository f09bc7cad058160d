#include "launch/job/end_markers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "src/core/files/best_effort_file.h"
#include "src/core/log.h"

namespace carole::launch {
namespace {

std::string JobEndMarkerPath(const std::string& train_dir) {
  return std::filesystem::path(train_dir) / ".job_end";
}

}  // namespace

void WriteRanksEndMarker(const GetEnvFunction& get) {
  const char* path = get(kRanksEndVariable);
  const auto placement = path == nullptr ? std::nullopt : FindRankPlacement(get);
  if (!placement || placement->rank != 0) return;
  if (const std::error_code error = ReplaceFile(path, ""))
    LogWarning(
        "launch",
        "{}: cannot be written: {}; training succeeded, but carole launch will report a lost "
        "host",
        path, error.message());
}

void WriteJobEndMarker(const std::string& train_dir, int exit_code) {
  const int64_t now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string path = JobEndMarkerPath(train_dir);
  std::error_code ignored;
  std::filesystem::create_directories(train_dir, ignored);
  const std::error_code error = ReplaceFile(
      path, fmt::format("exit code {} at {}\n", exit_code, now), fmt::format(".{}.part", getpid()));
  if (error)
    LogWarning("launch",
               "{}: cannot be written: {}; an evaluator will not learn that the job has ended",
               path, error.message());
}

JobEndDetector::JobEndDetector(const std::string& train_dir)
    : path_(JobEndMarkerPath(train_dir)), before_(ReadFileOrEmpty(path_)) {}

bool JobEndDetector::HasEnded() const {
  const std::string now = ReadFileOrEmpty(path_);
  return !now.empty() && now != before_;
}

}  // namespace carole::launch
