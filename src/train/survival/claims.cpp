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

#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"

namespace carole::train {
namespace {

namespace fs = std::filesystem;

constexpr char kTag[] = "survivors";
constexpr std::string_view kClaimPrefix = "claim-";
constexpr std::chrono::milliseconds kPoll{100};

std::string FolderIn(const std::string& train_dir) { return train_dir + "/.survivors"; }
std::string LockPath(const std::string& folder) { return folder + "/lock"; }

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
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  while (file.is_open() && flock(file.get(), kind | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    if (errno != EINTR) return FileDescriptor();
  }
  return file;
}

}  // namespace

std::optional<int> ChooseSaver(std::span<const Claim> claims) {
  const Claim* best = nullptr;
  for (const Claim& claim : claims) {
    if (claim.kind == Claim::Kind::kVoid) return std::nullopt;
    if (claim.kind != Claim::Kind::kWhole) continue;
    const bool is_better =
        best == nullptr || std::pair(-claim.step, claim.rank) < std::pair(-best->step, best->rank);
    if (is_better) best = &claim;
  }
  return best == nullptr ? std::nullopt : std::optional(best->rank);
}

SurvivorsFolder::SurvivorsFolder(const std::string& train_dir, uint64_t run_id)
    : folder_(FolderIn(train_dir)), run_id_(run_id) {}

void SurvivorsFolder::Create() const {
  Remove();
  MakeFolder(kTag, folder_);
  const FileDescriptor lock(open(LockPath(folder_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock.is_open()) ThrowDiskError(kTag, LockPath(folder_), "create", errno);
  WriteWholeFile(folder_ + "/run", fmt::format("{}\n", run_id_));
}

void SurvivorsFolder::Remove() const {
  std::error_code error;
  fs::remove_all(folder_, error);
}

bool SurvivorsFolder::IsVisible() const {
  const std::vector<std::string> words = ReadWords(folder_ + "/run");
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
  WriteWholeFile(folder_ + "/result", text + "\n");
}

bool SurvivorsFolder::HasResult() const {
  std::error_code error;
  return fs::exists(folder_ + "/result", error);
}

std::optional<FileDescriptor> SurvivorsFolder::LockForWriting(double seconds) const {
  const double end = SteadySeconds() + seconds;
  while (true) {
    if (std::optional<FileDescriptor> file = TryLock(folder_ + "/run", LOCK_EX)) return file;
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
          kTag, train_dir, kLongestSeconds));
    }
    if (!std::exchange(told, true))
      LogInfo(kTag, "{}: waiting until the last run's state is saved", train_dir);
  }
}

}  // namespace carole::train
