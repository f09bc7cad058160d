// The guardian: a process next to a rank that saves the rank's state if the rank dies.
#pragma once

#include <sys/types.h>

#include <exception>
#include <memory>

#include "src/core/files/file_descriptor.h"
#include "src/train/survival/surviving_state.h"

namespace carole::train {

// A rank's end of the connection to its guardian. Used by one thread.
//
// If the process ends without a call of Release() or Fail(), however that happens, the guardian
// saves the state.
class Guardian {
 public:
  // Starts the guardian process. Call it before the process has threads, MPI or HDF5, as the
  // guardian is a fork. Returns null, with a warning, if the system refuses.
  static std::unique_ptr<Guardian> Start();
  ~Guardian() = default;
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  SurvivingState& state() { return state_; }

  // Ends the guardian and waits for its end. Call it if the run has ended well, or if its state
  // need not be kept.
  void Release();
  // Says that this rank fails with `error`. If another rank was lost, the guardian saves the state.
  // For all other errors no guardian of the job may save, because the state may be the cause, as
  // when replicas differ. Does not wait.
  void Fail(const std::exception& error);
  // Waits until the guardian has ended or needs the end of this process, at most a minute. Slurm
  // kills guardians when the last rank of a host has ended, so a rank must not end earlier.
  void WaitForEnd();

 private:
  explicit Guardian(FileDescriptor socket);
  void Send(char message);

  SurvivingState state_;
  FileDescriptor socket_;
};

}  // namespace carole::train
