// How the guardians of a job agree on the state that they save, through small files next to the
// checkpoints. guardian.cpp explains the protocol.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/core/files/file_descriptor.h"
#include "src/core/files/run_lock.h"

namespace carole::train {

inline constexpr char kSurvivorsTag[] = "survivors";  // of log lines

// Says what the guardian of a rank can save.
struct Claim {
  enum class Kind : uint8_t {
    kWhole,  // a whole state
    kNone,   // none: the rank died in an update, or its memory may be damaged
    kVoid    // no state of this run may be saved: it failed by itself
  };
  int rank = 0;
  Kind kind = Kind::kNone;
  int64_t step = 0;
};

// Returns the rank that saves: the lowest of those with the newest whole state. Returns nullopt if
// there is none, or if a claim is void.
std::optional<int> ChooseSaver(std::span<const Claim> claims);
bool HasVoidClaim(std::span<const Claim> claims);

// Returns the folder in `work_dir` for the state of a run that cannot be saved in its train_dir.
// Its name has a hash of the absolute path of train_dir.
std::string FallbackFolder(const std::string& work_dir, const std::string& train_dir);

// For the start of a run at `step`, on each host: removes the fallback folder of an earlier run if
// its checkpoint is not newer. Otherwise logs a warning that says how to use it. Errors are
// warnings.
void TidyFallbackFolder(const std::string& work_dir, const std::string& train_dir, int64_t step);

// The folder `.survivors` in the folder of the checkpoints, which is train_dir or
// FallbackFolder(). Guardians and the run that created the folder use it.
class SurvivorsFolder {
 public:
  SurvivorsFolder(const std::string& checkpoints, uint64_t run_id);

  // Makes the folder anew for this run. For rank 0, while it holds the lock of train_dir. Throws
  // DiskError.
  void Create() const;
  // Makes the folder unless another guardian has done so. Throws DiskError.
  void Open() const;
  // Removes the folder. Ignores errors.
  void Remove() const;

  // Returns whether this process sees the folder that rank 0 made for this run.
  bool IsVisible() const;
  // Throws DiskError.
  void Write(const Claim& claim) const;
  std::vector<Claim> Read() const;
  // Says that the saver is done, whether it has saved or not. Throws DiskError.
  void WriteResult(const std::string& text) const;
  // Returns the result, which is one word, if the saver of this run is done; "" if not.
  std::string Result() const;
  // Waits at most `seconds` until no other guardian writes a checkpoint. The others cannot write
  // until the returned file is closed. Returns nullopt if the time is over. Returns a closed file
  // if the file system does not support locks.
  std::optional<FileDescriptor> LockForWriting(double seconds) const;
  // Keeps the next run out of train_dir until the returned file is closed, or this process ends.
  // Returns a closed file if the file system does not support locks.
  FileDescriptor KeepNextRunOut() const;

 private:
  std::string ClaimPath(int rank) const;

  const std::string folder_;
  const uint64_t run_id_;
};

// Returns a number that no other run has, with high probability.
uint64_t MakeRunId();

// Waits until the rank that locked train_dir has ended. Returns false if it holds the lock for
// longer than `seconds`. For guardians, which exclude the next run by KeepNextRunOut().
bool WaitForEndOfRun(const std::string& train_dir, double seconds);

// Takes the lock of train_dir for a new run. Waits while guardians of the run before are saving its
// state. Throws as RunLock does, and ConfigError if guardians need more than two minutes.
std::unique_ptr<RunLock> LockForRun(const std::string& train_dir);

}  // namespace carole::train
