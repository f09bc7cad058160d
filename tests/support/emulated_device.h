// The emulated device of one rank: a stream that runs kernels (cuda_emulation), memory that only
// these may access, and NCCL between ranks (nccl_emulation).
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/full_communicator.h"
#include "collectives/nccl/nccl.h"
#include "tests/support/run_ranks.h"

extern "C" const carole::collectives::NcclModule* carole_nccl_module();

namespace carole::testing {

// Connects the ranks of `communicator` by emulated NCCL, and gives each `count` floats.
class EmulatedDevice {
 public:
  EmulatedDevice(collectives::FullCommunicator& communicator, size_t count) : values_(count) {
    DeviceRanges().Add(values_.data(), count * sizeof(float));
    collectives::NcclId id{};
    if (communicator.rank() == 0) id = carole_nccl_module()->make_id();
    communicator.Broadcast(std::as_writable_bytes(std::span(id)), 0, {.what = "id"});
    communicator.SetDeviceAllReduce(std::unique_ptr<collectives::DeviceAllReduce>(
        carole_nccl_module()->connect(id, communicator.rank(), communicator.size(),
                                      {.device = 0, .stream = &stream_}, [] {})));
  }
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;
  ~EmulatedDevice() {
    stream_.Wait();
    DeviceRanges().Remove(values_.data());
  }

  EmulatedStream* stream() { return &stream_; }
  std::span<float> values() { return values_; }
  // Enqueues a kernel, which runs when the stream reaches it.
  void Launch(std::function<void(std::span<float>)> kernel) {
    stream_.Push([this, kernel = std::move(kernel)] { kernel(values_); });
  }
  // Waits for the stream and returns the values.
  std::vector<float> Fetch() {
    stream_.Wait();
    return values_;
  }

 private:
  std::vector<float> values_;
  EmulatedStream stream_;
};

}  // namespace carole::testing
