#include "src/train/loop/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace carole::train {

std::vector<MemoryUse> GatherDeviceMemory(collectives::Communicator& communicator,
                                          const TrainStep& step) {
  const std::optional<MemoryUse> mine = step.device_memory_use();
  if (!mine) return {};
  return AllGather(communicator, *mine, {.what = "device memory"});
}

std::string DescribeDeviceMemory(std::span<const MemoryUse> ranks) {
  constexpr size_t kMostRanks = 8;
  const auto describe = [&](size_t rank) {
    constexpr double kGiB = 1 << 30;
    return fmt::format("rank {}: {:.1f} of {:.1f} GiB", rank,
                       static_cast<double>(ranks[rank].used_bytes) / kGiB,
                       static_cast<double>(ranks[rank].total_bytes) / kGiB);
  };
  if (ranks.size() > kMostRanks) {
    const auto [least, most] = std::ranges::minmax_element(ranks, {}, &MemoryUse::used_bytes);
    return fmt::format("least {}, most {}", describe(least - ranks.begin()),
                       describe(most - ranks.begin()));
  }
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    text += (rank == 0 ? "" : ", ") + describe(rank);
  return text;
}

}  // namespace carole::train
