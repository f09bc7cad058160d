// Memory of a backend to measure all-reduces with.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/bench.h"
#include "collectives/full_communicator.h"
#include "src/backend/backend.h"

namespace carole::commands {

// On a device the range is in memory of the communicator, as gradients are. Backend and
// communicator must outlive this.
class BackendBenchMemory : public collectives::BenchMemory {
 public:
  BackendBenchMemory(const Backend& backend, collectives::FullCommunicator& communicator,
                     size_t bytes)
      : backend_(backend),
        arena_(backend.has_own_memory() && communicator.size() > 1
                   ? communicator.AllocateDeviceArena(bytes)
                   : nullptr),
        plain_(arena_ == nullptr ? backend.Allocate(bytes) : nullptr),
        range_(arena_ == nullptr ? plain_.get() : arena_->data()),
        target_(backend.Allocate(bytes)),
        host_(bytes / sizeof(float)) {}
  std::span<float> range() override { return {reinterpret_cast<float*>(range_), host_.size()}; }
  void Copy(size_t bytes) override { backend_.Copy(target_.get(), range_, bytes); }
  void Finish() override { backend_.Synchronize(); }
  std::span<float> host_range() override { return host_; }
  void Upload(size_t bytes) override {
    backend_.CopyFromHost(range_, reinterpret_cast<const std::byte*>(host_.data()), bytes);
  }
  void Download(size_t bytes) override {
    backend_.CopyToHost(reinterpret_cast<std::byte*>(host_.data()), range_, bytes);
  }

 private:
  const Backend& backend_;
  const std::unique_ptr<collectives::CommArena> arena_;
  const DeviceMemory plain_;
  std::byte* const range_;
  const DeviceMemory target_;
  std::vector<float> host_;
};

}  // namespace carole::commands
