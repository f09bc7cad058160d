// Implements FindTfCheckpoint() and FindUnnamedTfCheckpoint() of tf_checkpoint.h: which files a
// path means.
//
//   V2          P.index, P.data-00000-of-0000n, and P.meta, which is not read
//   V1          P and P.meta; or P-00000-of-0000n, …, which the file `checkpoint` calls
//               P-?????-of-0000n
//   checkpoint  names the latest checkpoint of its folder
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "io/tensorflow/tf_checkpoint.h"
#include "io/tensorflow/tf_checkpoint_state.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/text/parse_number.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxStateBytes = 1 << 20;
constexpr std::string_view kStateName = "checkpoint";
constexpr std::string_view kMetaSuffix = ".meta";
constexpr std::string_view kDataInfix = ".data-";

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool IsV2(const std::string& prefix) { return IsFile(prefix + std::string(kIndexSuffix)); }

// Returns the V1 checkpoint that `path` means, by its file, a shard, a pattern or the prefix of
// shards; nullopt if there is none.
std::optional<std::string> FindV1(const std::string& path) {
  if (const auto shards = ParseTfV1Shards(path)) {
    const std::string first = shards->Path(0);
    if (!IsLeveldbTable(first)) return std::nullopt;
    return shards->count == 1 ? first : shards->Pattern();
  }
  if (IsLeveldbTable(path)) return path;
  const fs::path prefix(path);
  std::error_code error;
  fs::directory_iterator it(prefix.has_parent_path() ? prefix.parent_path() : ".", error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();
    if (!name.starts_with(prefix.filename().string() + "-00000-of-")) continue;
    const std::string shard = prefix.parent_path() / name;
    if (ParseTfV1Shards(shard)) return FindV1(shard);
  }
  return std::nullopt;
}

// Returns the checkpoint that the path of a file, a prefix or a pattern means.
std::optional<std::string> FindByName(const std::string& path) {
  std::string prefix = path;
  for (const std::string_view suffix : {kIndexSuffix, kMetaSuffix}) {
    if (path.ends_with(suffix)) prefix.resize(path.size() - suffix.size());
  }
  if (const size_t data = path.find(kDataInfix, path.rfind('/') + 1);
      data != std::string::npos && IsFile(path))
    prefix.resize(data);
  if (prefix.empty() || prefix.ends_with('/')) return std::nullopt;
  return IsV2(prefix) ? prefix : FindV1(prefix);
}

// Returns whether the folder has a file `checkpoint`. What cannot be read counts, so that it is not
// taken for absent.
bool HasState(const fs::path& folder) {
  const fs::path state = folder / kStateName;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(state, error);
  if (status.type() == fs::file_type::none)
    ThrowDiskError("io.tf_checkpoint", state, "read", error.value());
  return status.type() != fs::file_type::not_found && !fs::is_directory(state, error);
}

// Returns the path that the file names. Throws DataError if it is malformed.
std::string ReadState(const fs::path& state) {
  const std::string text = ReadAll(*OpenFile(state), kMaxStateBytes);
  try {
    return ParseCheckpointState(text);
  } catch (const DataError& error) {
    throw DataError(
        fmt::format("[io.tf_checkpoint] {}: {}; correct the file, or move it away to start from "
                    "scratch",
                    state.string(), WithoutTag(error.what())));
  }
}

// Returns the checkpoint that the folder's file `checkpoint` names.
std::string LatestOf(const fs::path& folder) {
  const fs::path state = folder / kStateName;
  const std::string named = ReadState(state);
  if (const auto found = FindByName(folder / named)) return *found;
  // In a copied folder, the file may name the original folder, which may be one of Windows.
  const fs::path copied = folder / named.substr(named.find_last_of("/\\") + 1);
  if (const auto found = FindByName(copied)) return *found;
  throw DataError(fmt::format(
      "[io.tf_checkpoint] {}: names {}, which does not exist; copy its files too, or move this "
      "file away to start from scratch",
      state.string(), copied.string()));
}

// Returns the number at the end of a prefix such as "model.ckpt-120"; -1 if there is none.
int64_t StepOf(const std::string& prefix) {
  return ParseNumber<int64_t>(prefix.substr(prefix.rfind('-') + 1)).value_or(-1);
}

}  // namespace

std::optional<std::string> FindTfCheckpoint(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return HasState(path) ? std::optional(LatestOf(path)) : std::nullopt;
  const fs::path file(path);
  if (file.filename() == kStateName && IsFile(file) && !IsLeveldbTable(path))
    return LatestOf(file.parent_path());
  return FindByName(path);
}

std::optional<std::string> FindUnnamedTfCheckpoint(const std::string& folder) {
  std::error_code error;
  std::optional<std::string> newest;
  if (!fs::is_directory(folder, error) || HasState(folder)) return newest;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string path = it->path();
    if (!path.ends_with(kIndexSuffix) || !IsLeveldbTable(path)) continue;
    path.resize(path.size() - kIndexSuffix.size());
    if (!newest || StepOf(path) > StepOf(*newest)) newest = path;
  }
  return newest;
}

}  // namespace carole::io
