#include "collectives/engine/arena_registry.h"

#include <functional>
#include <utility>

#include "collectives/transport/operation.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {
namespace {

struct SharedArena final : CommArena {
  SharedArena(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }
  std::byte* data_;
  size_t size_;
};

struct PrivateArena final : CommArena {
  explicit PrivateArena(size_t bytes) : buffer(bytes) {}
  std::byte* data() const override { return buffer.data(); }
  size_t size() const override { return buffer.size(); }
  Buffer buffer;
};

}  // namespace

std::unique_ptr<CommArena> ArenaRegistry::Add(std::vector<std::byte*> ranks, int local_rank,
                                              size_t bytes) {
  arenas_.push_back({std::move(ranks), local_rank, bytes});
  const std::vector<std::byte*>& shared = arenas_.back().ranks;
  if (shared.empty()) return std::make_unique<PrivateArena>(bytes);
  return std::make_unique<SharedArena>(shared[local_rank], bytes);
}

uint64_t ArenaRegistry::AddressOf(std::span<const std::byte> data) const {
  const std::less_equal<const std::byte*> not_after;
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (arenas_[i].ranks.empty()) continue;
    const std::byte* base = arenas_[i].ranks[arenas_[i].local_rank];
    if (!not_after(base, data.data())) continue;
    if (!not_after(data.data() + data.size(), base + arenas_[i].bytes)) continue;
    return static_cast<uint64_t>(i) << OperationHeader::kOffsetBits |
           static_cast<uint64_t>(data.data() - base);
  }
  return OperationHeader::kNotInArena;
}

void ArenaRegistry::FindLocalAddresses(uint64_t arena_address,
                                       std::vector<std::byte*>& addresses) const {
  addresses.clear();
  if (arena_address == OperationHeader::kNotInArena) return;
  const size_t offset = arena_address & ((uint64_t{1} << OperationHeader::kOffsetBits) - 1);
  for (std::byte* base : arenas_[arena_address >> OperationHeader::kOffsetBits].ranks)
    addresses.push_back(base + offset);
}

}  // namespace carole::collectives
