// The emulated device of one rank: a stream that runs kernels (cuda_emulation), memory that only
// these may access, and NCCL between ranks (nccl_emulation).
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/bench.h"
#include "collectives/full_communicator.h"
#include "collectives/nccl/nccl.h"
#include "tests/support/run_ranks.h"

extern "C" const carole::collectives::NcclModule* carole_nccl_module();

namespace carole::testing {

// Connects the devices of the ranks by emulated NCCL. `stream` is that of this rank's kernels.
inline void ConnectByEmulatedNccl(collectives::FullCommunicator& communicator, void* stream,
                                  const collectives::NcclOptions& options = {
                                      .has_urgent_sums = true}) {
  const collectives::NcclModule& nccl = *carole_nccl_module();
  const auto lanes = collectives::MakeLanes(communicator, nccl, options);
  communicator.SetDeviceAllReduce(std::unique_ptr<collectives::DeviceAllReduce>(
      nccl.connect(lanes, {.device = 0, .stream = stream}, [] {})));
}

// Connects the ranks of `communicator` by emulated NCCL, and gives each `count` floats.
class EmulatedDevice {
 public:
  EmulatedDevice(collectives::FullCommunicator& communicator, size_t count,
                 const collectives::NcclOptions& options = {.has_urgent_sums = true})
      : values_(count) {
    DeviceRanges().Add(values_.data(), count * sizeof(float));
    ConnectByEmulatedNccl(communicator, &stream_, options);
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

// Memory of an emulated device for benchmarks of all-reduce.
class EmulatedDeviceMemory : public collectives::BenchMemory {
 public:
  EmulatedDeviceMemory(EmulatedDevice& device, size_t bytes)
      : device_(device), host_(bytes / sizeof(float)) {}
  std::span<float> range() override { return device_.values().first(host_.size()); }
  void Copy(size_t) override {}
  void Finish() override { device_.stream()->Wait(); }
  std::span<float> host_range() override { return host_; }
  void Upload(size_t) override {
    device_.Launch([this](std::span<float> v) { std::ranges::copy(host_, v.begin()); });
    Finish();
  }
  void Download(size_t) override {
    device_.Launch([this](std::span<float> v) { std::copy_n(v.begin(), host_.size(), &host_[0]); });
    Finish();
  }

 private:
  EmulatedDevice& device_;
  std::vector<float> host_;
};

}  // namespace carole::testing
