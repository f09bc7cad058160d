#include "src/train/step/replica_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/ranks/replica_check.h"
#include "src/backend/arena_math.h"
#include "src/core/error.h"
#include "src/core/rng.h"

namespace carole::train {
namespace {

// The hashes of a replica: one for each variable of each arena, those of the weights first.
class ReplicaHashes {
 public:
  ReplicaHashes(const ReplicaView& replica, std::span<const int> frozen) : store_(replica.store) {
    std::vector<int> trainable;
    for (size_t v = 0; v < store_.variables().size(); ++v) {
      if (store_.variables()[v].trainable) trainable.push_back(static_cast<int>(v));
    }
    Add(store_.weights_base(), trainable, "");
    for (size_t s = 0; s < replica.optimizer.slots().size(); ++s) {
      Add(replica.optimizer.slot(static_cast<int>(s)), trainable,
          "/" + replica.optimizer.slots()[s].name);
    }
    if (replica.moving_averages != nullptr) {
      Add(replica.moving_averages->shadow(0).data(), trainable, kMovingAverageSuffix);
    }
    if (!frozen.empty()) Add(store_.statistics_base(), frozen, "");
  }

  std::span<const uint64_t> all() const { return hashes_; }

  uint64_t Sum() const {
    uint64_t sum = 0;
    for (uint64_t hash : hashes_) sum = SplitMix64(sum ^ hash);
    return sum;
  }

  // Returns the name of the tensor with this hash: "a/weights" or "a/weights/Momentum".
  std::string NameOf(size_t index) const {
    for (const ParameterArena& arena : arenas_) {
      if (index < arena.variables.size())
        return store_.variables()[arena.variables[index]].name + arena.suffix;
      index -= arena.variables.size();
    }
    return "?";
  }

 private:
  struct ParameterArena {
    std::vector<int> variables;
    std::string suffix;  // of the names of its tensors
  };

  void Add(const std::byte* arena, std::span<const int> variables, const std::string& suffix) {
    arenas_.push_back({{variables.begin(), variables.end()}, suffix});
    const auto* floats = reinterpret_cast<const float*>(arena);
    std::vector<Segment> ranges;  // in floats; the bytes of other types are hashed as floats, too
    const auto floats_in_one = static_cast<int64_t>(SizeOf(store_.dtype()) / sizeof(float));
    for (int v : variables) {
      const VariableSlice& p = store_.variables()[v];
      ranges.push_back({p.offset * floats_in_one, (p.offset + p.count) * floats_in_one});
    }
    const std::vector<uint64_t> hashes = store_.backend().arena_math().Hashes(floats, ranges);
    hashes_.insert(hashes_.end(), hashes.begin(), hashes.end());
  }

  const VariableStore& store_;
  std::vector<ParameterArena> arenas_;
  std::vector<uint64_t> hashes_;
};

bool AllEqual(std::span<const uint64_t> values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

}  // namespace

void AuditReplicas(collectives::Communicator& communicator, const ReplicaView& replica,
                   std::span<const int> frozen, int64_t step) {
  if (communicator.size() == 1) return;
  const ReplicaHashes hashes(replica, frozen);
  const uint64_t sum = hashes.Sum();
  const collectives::Tag tag{.what = "audit", .step = step};
  if (AllEqual(AllGather(communicator, sum, tag))) return;
  const auto all = collectives::AllGatherValues<uint64_t>(communicator, hashes.all(), tag);
  const size_t num_hashes = hashes.all().size();
  for (size_t i = 0; i < num_hashes; ++i) {
    std::vector<uint64_t> values;
    for (size_t at = i; at < all.size(); at += num_hashes) values.push_back(all[at]);
    if (AllEqual(values)) continue;
    throw collectives::ReplicaError(fmt::format(
        "[audit] {}: replicas differ at step {}: {}; check memory and network of the ranks that "
        "differ; the last checkpoint is good",
        hashes.NameOf(i), step, collectives::DescribeDifferingRanks(communicator, values)));
  }
}

}  // namespace carole::train
