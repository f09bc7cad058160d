#include "io/checkpoint/checkpoint_writer.h"

#include <malloc.h>

#include <utility>

#include "io/checkpoint/checkpoint_folder.h"
#include "src/core/log.h"

namespace carole::io {
namespace {

// Frees the snapshot's memory. The heap does not shrink if a small block lies above the large ones
// of the snapshot. So free() alone would let the process keep their pages.
void Free(Checkpoint& snapshot) {
  snapshot = {};
  malloc_trim(0);
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options) : options_(std::move(options)) {
  RemoveTemporaries(options_.folder);
  thread_ = std::thread([this] { Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!error_) return;
  try {
    std::rethrow_exception(error_);
  } catch (const std::exception& error) {
    LogError("io.checkpoint", "the last checkpoint was not written: {}", error.what());
  }
}

void CheckpointWriter::Write(Checkpoint snapshot) {
  Wait();
  {
    const std::lock_guard lock(mutex_);
    snapshot_ = std::move(snapshot);
    snapshot_->keras = options_.keras;
  }
  changed_.notify_all();
}

bool CheckpointWriter::HasFailed() {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

std::optional<WrittenCheckpoint> CheckpointWriter::last_written() {
  const std::lock_guard lock(mutex_);
  return written_;
}

void CheckpointWriter::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !snapshot_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return snapshot_ || stop_; });
    if (!snapshot_) return;
    lock.unlock();
    std::exception_ptr error;
    std::optional<WrittenCheckpoint> written;
    try {
      // No lock is needed: callers do not touch snapshot_ until it is reset below.
      WriteCheckpoint(*snapshot_, CheckpointPath(options_.folder, snapshot_->step));
      written = {snapshot_->step, std::chrono::steady_clock::now()};
      PruneCheckpoints(options_.folder, snapshot_->step, options_.keep);
    } catch (...) {
      error = std::current_exception();
    }
    Free(*snapshot_);
    lock.lock();
    error_ = error;
    if (written) written_ = written;
    snapshot_.reset();
    changed_.notify_all();
  }
}

}  // namespace carole::io
