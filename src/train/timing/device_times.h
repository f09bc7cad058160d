// The times of steps on a device. A device that reduces gradients itself waits for other ranks
// while the host goes on, so the host cannot measure the parts of a step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "src/backend/backend.h"

namespace carole::train {

// A stopwatch that runs from step to step. One thread uses it.
class DeviceTimes {
 public:
  enum Part : uint8_t {
    kOutside,  // between steps, and waiting for inputs
    kCompute,  // forward, backward and optimizer
    kExposed,  // waiting for reductions after backward
    kSynced,   // waiting for sums over ranks in forward and backward (SyncBN)
    kNumParts
  };
  using Milliseconds = std::array<double, kNumParts>;

  // The backend must outlive this.
  explicit DeviceTimes(const Backend& backend)
      : backend_(backend), watch_(backend.Allocate(sizeof(DeviceStopwatch))) {}

  // Ends a lap when the device gets here: its time since the lap before counts for `part`. May be
  // captured.
  void EndLap(Part part) const { backend_.EndLap(watch(), part); }

  // Enqueues the download of the times until now. Does not block.
  std::unique_ptr<Download> MakeDownload() const {
    return backend_.MakeDownload(sizeof(DeviceStopwatch));
  }
  void BeginDownload(Download& download) const { download.Begin(watch_.get()); }
  // Waits for a download. Returns the times since the previous call of Take().
  Milliseconds Take(Download& download);

 private:
  DeviceStopwatch* watch() const { return reinterpret_cast<DeviceStopwatch*>(watch_.get()); }

  const Backend& backend_;
  const DeviceMemory watch_;
  DeviceStopwatch taken_;  // as of the last Take()
};

}  // namespace carole::train
