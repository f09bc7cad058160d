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

// What the guardian of a rank has.
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

// The folder `<train_dir>/.survivors`. A guardian and the run that created the folder use it.
class SurvivorsFolder {
 public:
  SurvivorsFolder(const std::string& train_dir, uint64_t run_id);

  // Makes the folder anew for this run. For rank 0, while it holds the lock of train_dir. Throws
  // DiskError.
  void Create() const;
  // Removes the folder. Ignores errors.
  void Remove() const;

  // Returns whether this process sees the folder that rank 0 made for this run.
  bool IsVisible() const;
  // Throws DiskError.
  void Write(const Claim& claim) const;
  std::vector<Claim> Read() const;
  // The saver is done, whether it has saved or not.
  void WriteResult(const std::string& text) const;
  bool HasResult() const;
  // Waits until no other guardian writes a checkpoint, at most `seconds`, and keeps the others from
  // writing until the returned file is closed. Returns nullopt if it takes longer. A closed file
  // means that the file system does not support locks.
  std::optional<FileDescriptor> LockForWriting(double seconds) const;
  // Keeps the next run out of train_dir until the returned file is closed, or this process ends.
  // Closed if the file system does not support locks.
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
