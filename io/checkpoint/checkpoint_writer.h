// Writes checkpoints while training goes on.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "io/checkpoint/checkpoint.h"

namespace carole::io {

struct CheckpointWriterOptions {
  std::string folder;               // must exist
  int keep = 5;                     // newest checkpoints that stay; 0: all
  std::optional<KerasModel> keras;  // goes into each
};

// One thread that writes snapshots into a folder and deletes the oldest once a newer one is on the
// disk: so the checkpoint that a run was resumed from stays until then. At most one snapshot waits
// or is being written, which bounds the memory. To be used by one thread, of the one run that holds
// the RunLock.
class CheckpointWriter {
 public:
  // Removes the unfinished files of runs that died. Throws DiskError.
  explicit CheckpointWriter(CheckpointWriterOptions options);
  ~CheckpointWriter();  // finishes what was given; an error that nobody waited for is logged

  // Takes the snapshot and returns; blocks only while an earlier one is still being written.
  // Throws what an earlier write threw; the snapshot given with that call is dropped.
  void Write(Checkpoint snapshot);

  // Whether a write has thrown, which the next Write() or Wait() will tell.
  bool HasFailed();

  // Blocks until all is on the disk. Throws what a write threw (DiskError).
  void Wait();

 private:
  void Run();

  const CheckpointWriterOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Checkpoint> snapshot_;  // given and not finished
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace carole::io
