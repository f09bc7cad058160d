#include "src/train/survival/claims.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "io/checkpoint/checkpoint_folder.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/hash.h"
#include "src/core/host_name.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"

namespace carole::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kClaimPrefix = "claim-";
constexpr std::chrono::milliseconds kPoll{100};

std::string FolderIn(const std::string& checkpoints) { return checkpoints + "/.survivors"; }
std::string LockPath(const std::string& folder) { return folder + "/lock"; }
std::string RunPath(const std::string& folder) { return folder + "/run"; }
std::string ResultPath(const std::string& folder) { return folder + "/result"; }

void CreateIfMissing(const std::string& path) {
  const FileDescriptor file(
      RetryIfInterrupted([&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); }));
  if (!file.is_open()) ThrowDiskError(kSurvivorsTag, path, "create", errno);
}

// Returns the words of a small file; none if it cannot be read.
std::vector<std::string> ReadWords(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

// Takes an flock without waiting. Returns nullopt if another process holds it, and a closed
// descriptor if there is no such file or no locks.
std::optional<FileDescriptor> TryLock(const std::string& path, int kind) {
  FileDescriptor file(RetryIfInterrupted([&] { return open(path.c_str(), O_RDWR | O_CLOEXEC); }));
  while (file.is_open() && flock(file.get(), kind | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    if (errno != EINTR) return FileDescriptor();
  }
  return file;
}

}  // namespace

bool HasVoidClaim(std::span<const Claim> claims) {
  return std::ranges::count(claims, Claim::Kind::kVoid, &Claim::kind) > 0;
}

std::optional<int> ChooseSaver(std::span<const Claim> claims) {
  if (HasVoidClaim(claims)) return std::nullopt;
  const Claim* best = nullptr;
  for (const Claim& claim : claims) {
    if (claim.kind != Claim::Kind::kWhole) continue;
    const bool is_better =
        best == nullptr || std::pair(-claim.step, claim.rank) < std::pair(-best->step, best->rank);
    if (is_better) best = &claim;
  }
  return best == nullptr ? std::nullopt : std::optional(best->rank);
}

std::string FallbackFolder(const std::string& work_dir, const std::string& train_dir) {
  std::error_code ignored;
  fs::path path = fs::absolute(train_dir, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return fmt::format("{}/survivors-{}-{:016x}", work_dir, path.filename().string(),
                     Fnv1a64(path.string()));
}

void TidyFallbackFolder(const std::string& work_dir, const std::string& train_dir, int64_t step) {
  const std::string folder = FallbackFolder(work_dir, train_dir);
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  std::vector<io::CheckpointFile> files;
  try {
    files = io::ListCheckpoints(folder);
  } catch (const DiskError& unreadable) {
    return LogWarning(kSurvivorsTag, "{}", WithoutTag(unreadable.what()));
  }
  if (files.empty() || files.back().step <= step) {
    fs::remove_all(folder, error);
    return;
  }
  LogWarning(kSurvivorsTag,
             "{} on {}: step {} of a lost run is newer than step {}, at which this run starts; to "
             "continue from there, stop this run, copy that file to {} on the host of rank 0, and "
             "run again",
             files.back().path, HostName(), files.back().step, step, train_dir);
}

SurvivorsFolder::SurvivorsFolder(const std::string& checkpoints, uint64_t run_id)
    : folder_(FolderIn(checkpoints)), run_id_(run_id) {}

void SurvivorsFolder::Create() const {
  Remove();
  MakeFolder(kSurvivorsTag, folder_);
  CreateIfMissing(LockPath(folder_));
  WriteWholeFile(RunPath(folder_), fmt::format("{}\n", run_id_));
}

void SurvivorsFolder::Open() const {
  MakeFolder(kSurvivorsTag, folder_);
  CreateIfMissing(RunPath(folder_));
}

void SurvivorsFolder::Remove() const {
  std::error_code error;
  fs::remove_all(folder_, error);
}

bool SurvivorsFolder::IsVisible() const {
  const std::vector<std::string> words = ReadWords(RunPath(folder_));
  return words.size() == 1 && words[0] == std::to_string(run_id_);
}

std::string SurvivorsFolder::ClaimPath(int rank) const {
  return fmt::format("{}/{}{}", folder_, kClaimPrefix, rank);
}

void SurvivorsFolder::Write(const Claim& claim) const {
  WriteWholeFile(ClaimPath(claim.rank), fmt::format("{} {} {} {}\n", run_id_, claim.rank,
                                                    static_cast<int>(claim.kind), claim.step));
}

std::vector<Claim> SurvivorsFolder::Read() const {
  std::vector<Claim> claims;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kClaimPrefix) || name.find('.') != std::string::npos) continue;
    std::ifstream file(it->path());
    uint64_t run_id = 0;
    int kind = 0;
    Claim claim;
    if (!(file >> run_id >> claim.rank >> kind >> claim.step) || run_id != run_id_) continue;
    claim.kind = static_cast<Claim::Kind>(kind);
    claims.push_back(claim);
  }
  return claims;
}

void SurvivorsFolder::WriteResult(const std::string& text) const {
  WriteWholeFile(ResultPath(folder_), fmt::format("{} {}\n", run_id_, text));
}

std::string SurvivorsFolder::Result() const {
  const std::vector<std::string> words = ReadWords(ResultPath(folder_));
  return words.size() == 2 && words[0] == std::to_string(run_id_) ? words[1] : "";
}

std::optional<FileDescriptor> SurvivorsFolder::LockForWriting(double seconds) const {
  const double end = SteadySeconds() + seconds;
  while (true) {
    if (std::optional<FileDescriptor> file = TryLock(RunPath(folder_), LOCK_EX)) return file;
    if (SteadySeconds() > end) return std::nullopt;
    std::this_thread::sleep_for(kPoll);
  }
}

FileDescriptor SurvivorsFolder::KeepNextRunOut() const {
  std::optional<FileDescriptor> file = TryLock(LockPath(folder_), LOCK_SH);
  return file ? std::move(*file) : FileDescriptor();
}

uint64_t MakeRunId() {
  std::random_device random;
  return uint64_t{random()} << 32U | random();
}

bool WaitForEndOfRun(const std::string& train_dir, double seconds) {
  const double end = SteadySeconds() + seconds;
  while (!TryLock(train_dir + "/.lock", LOCK_EX)) {
    if (SteadySeconds() > end) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

// A guardian holds the lock of train_dir for a moment, when it makes sure that the run has ended.
// So a conflict counts only if it lasts.
std::unique_ptr<RunLock> LockForRun(const std::string& train_dir) {
  constexpr double kConflictSeconds = 1, kLongestSeconds = 120;
  const std::string path = LockPath(FolderIn(train_dir));
  const double start = SteadySeconds();
  for (bool told = false;; std::this_thread::sleep_for(kPoll)) {
    const double waited = SteadySeconds() - start;
    try {
      auto lock = std::make_unique<RunLock>(train_dir);
      if (TryLock(path, LOCK_EX)) return lock;
    } catch (const ConfigError&) {
      const bool has_guardians = !TryLock(path, LOCK_EX);
      if (!has_guardians || waited > kConflictSeconds) throw;
      continue;
    }
    if (waited > kLongestSeconds) {
      throw ConfigError(fmt::format(
          "[{}] {}: the last run's state is still being saved after {:.0f} s; wait, or end the "
          "processes named \"carole: guardian\"",
          kSurvivorsTag, train_dir, kLongestSeconds));
    }
    if (!std::exchange(told, true))
      LogInfo(kSurvivorsTag, "{}: waiting until the last run's state is saved", train_dir);
  }
}

}  // namespace carole::train
