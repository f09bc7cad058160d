// ArenaRegistry: the arenas of a communicator, and the addresses of data in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"

namespace carole::collectives {

class ArenaRegistry {
 public:
  // Adds an arena; all ranks add theirs in the same order. ranks[l] is the address of local rank
  // l's part in this process, which must outlive the arena. If `ranks` is empty, the arena owns
  // private memory of this process instead, because the host cannot share memory.
  std::unique_ptr<CommArena> Add(std::vector<std::byte*> ranks, int local_rank, size_t bytes);

  // Returns the arena number and the offset of `data` in the arena, packed as in
  // OperationHeader::arena_address. It is the same on all ranks that lay out their data alike.
  // Returns kNotInArena if `data` is not completely inside of one shared arena.
  uint64_t AddressOf(std::span<const std::byte> data) const;
  // Returns in `addresses` where the data at `arena_address` is in the part of each local rank.
  // Returns nothing for kNotInArena.
  void FindLocalAddresses(uint64_t arena_address, std::vector<std::byte*>& addresses) const;

 private:
  struct Shared {
    std::vector<std::byte*> ranks;
    int local_rank = 0;
    size_t bytes = 0;
  };
  std::vector<Shared> arenas_;
};

}  // namespace carole::collectives
