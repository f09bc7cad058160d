#include "collectives/ranks/replica_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/core/rng.h"

namespace carole::collectives {

// Hashes in four independent chains, so that the multiplications overlap.
uint64_t HashOfFloats(std::span<const float> values) {
  constexpr size_t kChains = 4;
  uint64_t chains[kChains] = {1, 2, 3, 4};
  const size_t num_words = values.size() / 2;
  const auto word = [&](size_t i) {
    uint64_t bits = 0;
    std::memcpy(&bits, values.data() + 2 * i, sizeof(bits));
    return bits;
  };
  size_t i = 0;
  for (; i + kChains <= num_words; i += kChains) {
    for (size_t c = 0; c < kChains; ++c) chains[c] = SplitMix64(chains[c] ^ word(i + c));
  }
  for (; i < num_words; ++i) chains[0] = SplitMix64(chains[0] ^ word(i));
  uint32_t last = 0;
  if (values.size() % 2 == 1) std::memcpy(&last, &values.back(), sizeof(last));
  uint64_t hash = SplitMix64(values.size() ^ uint64_t{last} << 32);
  for (uint64_t chain : chains) hash = SplitMix64(hash ^ chain);
  return hash;
}

void VerifyReplicas(Communicator& communicator, std::span<const float> weights,
                    std::string_view what, int64_t step) {
  if (communicator.size() == 1) return;
  const uint64_t mine = HashOfFloats(weights);
  const std::vector<uint64_t> hashes = AllGather(communicator, mine, {.what = what, .step = step});
  if (std::ranges::count(hashes, mine) == communicator.size()) return;
  throw ReplicaError(
      fmt::format("[comm] {}: replicas differ at step {}: {}; check the memory and network of "
                  "these ranks",
                  what, step, DescribeDifferingRanks(communicator, hashes)));
}

std::string DescribeDifferingRanks(const Communicator& communicator,
                                   std::span<const uint64_t> values) {
  const auto votes = [&](uint64_t value) { return std::ranges::count(values, value); };
  const auto common = *std::ranges::max_element(values, {}, votes);
  const bool leads = std::ranges::all_of(
      values, [&](uint64_t v) { return v == common || votes(v) < votes(common); });
  std::string text;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (leads && values[rank] == common) continue;
    text += fmt::format("{}{} got {:#018x}", text.empty() ? "" : ", ",
                        communicator.NameOf(static_cast<int>(rank)), values[rank]);
  }
  return leads ? fmt::format("{}, want {:#018x} as the {} others", text, common, votes(common))
               : text + ", and there is no majority";
}

void BroadcastAndVerify(Communicator& communicator, std::span<float> weights,
                        std::string_view what) {
  if (communicator.size() == 1) return;
  communicator.Broadcast(std::as_writable_bytes(weights), 0, {.what = what});
  VerifyReplicas(communicator, weights, what);
}

}  // namespace carole::collectives
