#include "io/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/text/parse_number.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "model.ckpt-";
constexpr std::string_view kSuffix = ".h5";

// The step in "model.ckpt-120.h5"; nullopt for other names.
std::optional<int64_t> StepOf(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (name.size() <= kSuffix.size()) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const auto step = ParseNumber<int64_t>(name);
  return step && *step >= 0 ? step : std::nullopt;
}

std::vector<std::string> FileNames(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names = NamesIn(folder, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    ThrowDiskError("io.checkpoint", folder, "list the folder", error.value());
  }
  return names;
}

// Deletes the file, if it exists. Returns 0, or a value of errno.
int Delete(const std::string& path) {
  const bool failed = RetryIfInterrupted([&] { return unlink(path.c_str()); }) != 0;
  return failed && errno != ENOENT ? errno : 0;
}

}  // namespace

std::string CheckpointPath(const std::string& folder, int64_t step) {
  return (fs::path(folder) / fmt::format("{}{}{}", kPrefix, step, kSuffix)).string();
}

std::vector<CheckpointFile> ListCheckpoints(const std::string& folder) {
  std::vector<CheckpointFile> files;
  for (const std::string& name : FileNames(folder)) {
    if (const auto step = StepOf(name))
      files.push_back({*step, (fs::path(folder) / name).string()});
  }
  std::ranges::sort(files, {}, &CheckpointFile::step);
  return files;
}

std::optional<LoadedCheckpoint> ReadLatest(const std::string& folder, ElementsIn place) {
  std::vector<CheckpointFile> files = ListCheckpoints(folder);
  std::reverse(files.begin(), files.end());  // the newest first
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& path = files[i].path;
    try {
      return LoadedCheckpoint{path, ReadCheckpoint(path, place)};
    } catch (const DataError& error) {
      LogWarning("io.checkpoint", "skipping a checkpoint: {}", WithoutTag(error.what()));
    } catch (const DiskError& error) {  // possibly temporary: not a reason to lose steps
      if (i + 1 == files.size()) throw;
      throw DiskError(fmt::format("{}; or move {} away to continue from step {}", error.what(),
                                  path, files[i + 1].step));
    }
  }
  if (files.empty()) return std::nullopt;
  throw DataError(
      fmt::format("[io.checkpoint] {}: all of its checkpoints ({}) are damaged; move them away to "
                  "start from scratch",
                  folder, files.size()));
}

void RemoveTemporaries(const std::string& folder) {
  constexpr std::string_view kEnd = kTemporarySuffix;
  for (const std::string& name : FileNames(folder)) {
    if (!name.ends_with(kEnd) || !StepOf(name.substr(0, name.size() - kEnd.size()))) continue;
    const std::string path = (fs::path(folder) / name).string();
    if (const int error = Delete(path)) ThrowDiskError("io.checkpoint", path, "delete", error);
  }
}

void PruneCheckpoints(const std::string& folder, int64_t step, int keep) {
  if (keep <= 0) return;
  std::vector<CheckpointFile> files = ListCheckpoints(folder);
  std::erase_if(files, [&](const CheckpointFile& file) { return file.step > step; });
  const size_t surplus = files.size() - std::min(files.size(), static_cast<size_t>(keep));
  for (const CheckpointFile& file : std::span(files).first(surplus)) {
    if (const int error = Delete(file.path))
      LogWarning("io.checkpoint", "{}", DescribeDiskError(file.path, "delete", error));
  }
}

}  // namespace carole::io
