// The arenas of a job: memory that the ranks of a host share, and where data lies in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"

namespace carole::collectives {

class Arenas {
 public:
  // The next one; all ranks add theirs in the same order. `ranks`: where this process sees each
  // local rank's part, which outlives the arena; none where a host cannot share, then the memory is
  // this process's own.
  std::unique_ptr<Arena> Add(std::vector<std::byte*> ranks, int local_rank, size_t bytes);

  // Number of the arena and offset in it, the same on ranks that lay their data out alike;
  // Header::kOutside for what lies in none that is shared.
  uint64_t PlaceOf(std::span<const std::byte> data) const;
  // Where what lies at that place lies for each local rank; nothing for Header::kOutside.
  void FindPeers(uint64_t place, std::vector<std::byte*>& peers) const;

 private:
  struct Shared {
    std::vector<std::byte*> ranks;
    int local_rank = 0;
    size_t bytes = 0;
  };
  std::vector<Shared> arenas_;
};

}  // namespace carole::collectives
