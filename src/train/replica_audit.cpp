#include "src/train/replica_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "collectives/replicas.h"
#include "src/backend/host_view.h"
#include "src/core/error.h"
#include "src/core/rng.h"

namespace carole::train {
namespace {

std::vector<uint64_t> Gather(collectives::Communicator& communicator,
                             std::span<const uint64_t> mine, int64_t step) {
  std::vector<uint64_t> all(mine.size() * static_cast<size_t>(communicator.size()));
  communicator.AllGather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)),
                         {.what = "audit", .step = step});
  return all;
}

// One hash for each trainable variable and arena, the weights first.
class Hashes {
 public:
  Hashes(const VariableStore& store, const optim::Optimizer& optimizer) {
    for (size_t v = 0; v < store.places().size(); ++v) {
      if (store.places()[v].trainable) trainable_.push_back(static_cast<int>(v));
    }
    AddArena(store, store.weights_base());
    for (size_t s = 0; s < optimizer.slots().size(); ++s)
      AddArena(store, optimizer.slot(static_cast<int>(s)));
  }

  std::span<const uint64_t> all() const { return hashes_; }

  uint64_t Sum() const {
    uint64_t sum = 0;
    for (uint64_t hash : hashes_) sum = SplitMix64(sum ^ hash);
    return sum;
  }

  // "a/weights", "a/weights/Momentum"
  std::string NameOf(size_t index, const VariableStore& store,
                     const optim::Optimizer& optimizer) const {
    const std::string& name = store.places()[trainable_[index % trainable_.size()]].name;
    const size_t arena = index / trainable_.size();
    return arena == 0 ? name : name + "/" + optimizer.slots()[arena - 1].name;
  }

 private:
  void AddArena(const VariableStore& store, std::byte* arena) {
    const size_t element = SizeOf(store.dtype());
    const HostView view(store.backend(), arena,
                        static_cast<size_t>(store.trainable_count()) * element);
    const std::byte* base = view.as<std::byte>().data();
    for (int v : trainable_) {
      const VariablePlace& p = store.places()[v];
      const std::byte* data = base + static_cast<size_t>(p.offset) * element;
      const size_t floats = static_cast<size_t>(p.count) * element / sizeof(float);
      hashes_.push_back(collectives::HashOfFloats({reinterpret_cast<const float*>(data), floats}));
    }
  }

  std::vector<int> trainable_;
  std::vector<uint64_t> hashes_;
};

bool AllEqual(std::span<const uint64_t> values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

}  // namespace

void AuditReplicas(collectives::Communicator& communicator, const VariableStore& store,
                   const optim::Optimizer& optimizer, int64_t step) {
  if (communicator.size() == 1) return;
  const Hashes hashes(store, optimizer);
  const uint64_t sum = hashes.Sum();
  if (AllEqual(Gather(communicator, std::span(&sum, 1), step))) return;
  const std::vector<uint64_t> all = Gather(communicator, hashes.all(), step);
  const size_t num_hashes = hashes.all().size();
  for (size_t i = 0; i < num_hashes; ++i) {
    std::vector<uint64_t> values;
    for (size_t at = i; at < all.size(); at += num_hashes) values.push_back(all[at]);
    if (AllEqual(values)) continue;
    throw CommError(fmt::format(
        "[audit] {}: replicas differ at step {}: {}; memory or network of the odd ranks is "
        "suspect, the last checkpoint is good",
        hashes.NameOf(i, store, optimizer), step, collectives::DescribeOdd(communicator, values)));
  }
}

}  // namespace carole::train
