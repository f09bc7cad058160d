// Writes checkpoints on a thread, while training continues.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "io/checkpoint/checkpoint.h"

namespace carole::io {

struct CheckpointWriterOptions {
  std::string folder;               // must exist
  int keep = 5;                     // how many of the newest checkpoints to keep; 0: all
  std::optional<KerasModel> keras;  // stored in each checkpoint
};

// A checkpoint that is on the disk.
struct WrittenCheckpoint {
  int64_t step = 0;
  std::chrono::steady_clock::time_point when;  // when it became durable
};

// Writes snapshots into a folder on a thread. Deletes the oldest checkpoint only after a newer one
// is on the disk. So the checkpoint from which a run resumed stays until then. At most one snapshot
// is in memory, which bounds the memory. One thread of the run that holds the RunLock uses a
// writer.
class CheckpointWriter {
 public:
  // Deletes the unfinished files of runs that died. Throws DiskError.
  explicit CheckpointWriter(CheckpointWriterOptions options);
  ~CheckpointWriter();  // finishes the write; logs an error that no call has thrown

  // Takes the snapshot and returns. Blocks only while an earlier one is still being written. Throws
  // the error of an earlier write; then this snapshot is dropped.
  void Write(Checkpoint snapshot);

  // True if a write has failed and the next Write() or Wait() will throw its error.
  bool HasFailed();

  // The last checkpoint that this object has written; nullopt before the first one.
  std::optional<WrittenCheckpoint> last_written();

  // Blocks until the snapshot is on the disk. Throws the error of a write (DiskError).
  void Wait();

 private:
  void Run();

  const CheckpointWriterOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Checkpoint> snapshot_;  // not yet on the disk
  std::optional<WrittenCheckpoint> written_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last member: it uses the others
};

}  // namespace carole::io
