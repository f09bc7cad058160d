#include "src/backend/host/backend.h"

#include <cstring>
#include <utility>

#include "src/backend/host/arena_math.h"
#include "src/backend/host/scoped_allocator.h"
#include "src/tensor/buffer.h"

namespace carole::host {
namespace {

void CopyBytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

thread_local const ScopedAllocator::Allocate* current_allocator = nullptr;

class HostDownload : public Download {
 public:
  explicit HostDownload(size_t bytes) : bytes_(bytes) {}

  void Begin(const std::byte* device) override { CopyBytes(bytes_.data(), device, bytes_.size()); }
  const std::byte* Wait() override { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

class HostInputBuffers : public InputBuffers {
 public:
  explicit HostInputBuffers(std::vector<std::span<std::byte>> inputs)
      : inputs_(std::move(inputs)) {}

  std::byte* HostMemory(size_t index) override { return inputs_[index].data(); }
  void Upload() override {}

 private:
  const std::vector<std::span<std::byte>> inputs_;
};

}  // namespace

HostBackend::HostBackend(int threads) : threads_(threads), arena_math_(MakeArenaMath(threads)) {}

ScopedAllocator::ScopedAllocator(Allocate allocate)
    : allocate_(std::move(allocate)), outer_(std::exchange(current_allocator, &allocate_)) {}

ScopedAllocator::~ScopedAllocator() { current_allocator = outer_; }

DeviceMemory HostBackend::Allocate(size_t bytes) const {
  return current_allocator != nullptr ? (*current_allocator)(bytes) : AllocateOnHost(bytes);
}

void HostBackend::DiscardContents(std::byte* memory, size_t bytes) const {
  DiscardPages(memory, bytes);
}

void HostBackend::CopyToHost(std::byte* host, const std::byte* device, size_t bytes) const {
  CopyBytes(host, device, bytes);
}

void HostBackend::CopyFromHost(std::byte* device, const std::byte* host, size_t bytes) const {
  CopyBytes(device, host, bytes);
}

std::unique_ptr<Download> HostBackend::MakeDownload(size_t bytes) const {
  return std::make_unique<HostDownload>(bytes);
}

std::unique_ptr<InputBuffers> HostBackend::MakeInputBuffers(
    const std::vector<std::span<std::byte>>& inputs) const {
  return std::make_unique<HostInputBuffers>(inputs);
}

}  // namespace carole::host
