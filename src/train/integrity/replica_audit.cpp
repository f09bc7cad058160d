#include "src/train/integrity/replica_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "collectives/ranks/replica_check.h"
#include "src/backend/arena_math.h"
#include "src/backend/host_view.h"
#include "src/core/log.h"
#include "src/core/rng.h"

namespace carole::train {
namespace {

constexpr char kScalars[] = "numbers of the optimizer";

// The tensors of a replica with their hashes: one for each variable of each arena, those of the
// weights first. The last hash is that of the numbers that belong to no variable.
class ReplicaTensors {
 public:
  ReplicaTensors(const ReplicaView& replica, std::span<const int> statistics)
      : store_(replica.store), replica_(replica) {
    std::vector<int> trainable;
    for (size_t v = 0; v < store_.variables().size(); ++v) {
      if (store_.variables()[v].trainable) trainable.push_back(static_cast<int>(v));
    }
    std::vector<int> averaged;
    std::ranges::copy_if(statistics, std::back_inserter(averaged),
                         [this](int v) { return store_.variables()[v].model_variable; });
    Add(store_.weights_base(), trainable, "");
    for (size_t s = 0; s < replica.optimizer.slots().size(); ++s) {
      Add(replica.optimizer.slot(static_cast<int>(s)), trainable,
          "/" + replica.optimizer.slots()[s].name);
    }
    Add(store_.statistics_base(), statistics, "");
    if (replica.moving_averages != nullptr) {
      Add(replica.moving_averages->shadow(0).data(), trainable, kMovingAverageSuffix);
      Add(replica.moving_averages->shadow(1).data(), averaged, kMovingAverageSuffix);
    }
    uint64_t hash = 0;
    for (double value : Scalars()) hash = SplitMix64(hash ^ std::bit_cast<uint64_t>(value));
    hashes_.push_back(hash);
  }

  std::span<const uint64_t> hashes() const { return hashes_; }

  uint64_t Sum() const {
    uint64_t sum = 0;
    for (uint64_t hash : hashes_) sum = SplitMix64(sum ^ hash);
    return sum;
  }

  // Returns the name of the tensor with this hash: "a/weights" or "a/weights/Momentum".
  std::string NameOf(size_t index) const {
    return index < tensors_.size() ? tensors_[index].name : kScalars;
  }

  // Replaces the tensor with this hash by that of rank `source`. Collective.
  void CopyFrom(int source, size_t index, collectives::Communicator& communicator,
                const collectives::Tag& tag) const {
    if (index == tensors_.size()) return CopyScalarsFrom(source, communicator, tag);
    const HostView view(store_.backend(), tensors_[index].data, tensors_[index].bytes);
    communicator.Broadcast(view.as<std::byte>(), source, tag);
    if (communicator.rank() != source) view.Store();
  }

 private:
  struct ReplicaTensor {
    std::string name;
    std::byte* data = nullptr;  // in the backend's memory
    size_t bytes = 0;
  };

  void Add(std::byte* arena, std::span<const int> variables, const std::string& suffix) {
    if (variables.empty()) return;
    std::vector<Segment> ranges;  // in floats; the bytes of other types are hashed as floats, too
    const auto element = static_cast<int64_t>(SizeOf(store_.dtype()));
    const int64_t floats_in_one = element / static_cast<int64_t>(sizeof(float));
    for (int v : variables) {
      const VariableSlice& p = store_.variables()[v];
      ranges.push_back({p.offset * floats_in_one, (p.offset + p.count) * floats_in_one});
      tensors_.push_back({.name = p.name + suffix,
                          .data = arena + p.offset * element,
                          .bytes = static_cast<size_t>(p.count * element)});
    }
    const std::vector<uint64_t> hashes =
        store_.backend().arena_math().Hashes(reinterpret_cast<const float*>(arena), ranges);
    hashes_.insert(hashes_.end(), hashes.begin(), hashes.end());
  }

  std::vector<double> Scalars() const {
    std::vector<double> values;
    const auto add = [&](const auto& owner) {
      for (const optim::OptimizerScalar& scalar : owner.scalars()) values.push_back(scalar.value);
    };
    add(replica_.optimizer);
    if (replica_.loss_scale != nullptr) add(*replica_.loss_scale);
    return values;
  }

  void CopyScalarsFrom(int source, collectives::Communicator& communicator,
                       const collectives::Tag& tag) const {
    std::vector<double> values = Scalars();
    communicator.Broadcast(std::as_writable_bytes(std::span(values)), source, tag);
    size_t next = 0;
    const auto set = [&](auto& owner) {
      for (const optim::OptimizerScalar& scalar : owner.scalars())
        owner.SetScalar(scalar.name, values[next++]);
    };
    set(replica_.optimizer);
    if (replica_.loss_scale != nullptr) set(*replica_.loss_scale);
  }

  const VariableStore& store_;
  const ReplicaView& replica_;
  std::vector<ReplicaTensor> tensors_;
  std::vector<uint64_t> hashes_;  // of tensors_, then of the numbers
};

// One tensor that is not the same on all ranks.
struct Difference {
  size_t tensor = 0;
  std::vector<uint64_t> values;  // hashes, by rank
  int source = 0;                // the lowest rank of the majority

  bool IsWrong(int rank) const { return values[rank] != values[source]; }
};

bool AllEqual(std::span<const uint64_t> values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// Returns the lowest rank that has the value of a strict majority of at least three ranks.
std::optional<int> LowestOfMajority(std::span<const uint64_t> values) {
  if (values.size() < 3) return std::nullopt;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    const auto votes = static_cast<size_t>(std::ranges::count(values, values[rank]));
    if (2 * votes > values.size()) return static_cast<int>(rank);
  }
  return std::nullopt;
}

// Throws ReplicaError that says why replicas cannot be repaired.
[[noreturn]] void Fail(const collectives::Communicator& communicator, const ReplicaTensors& tensors,
                       const Difference& difference, int64_t step, const std::string& why) {
  throw collectives::ReplicaError(fmt::format(
      "[audit] {}: replicas differ at step {}: {}{}; check memory and network of the ranks that "
      "differ; the last checkpoint is good",
      tensors.NameOf(difference.tensor), step,
      collectives::DescribeDifferingRanks(communicator, difference.values), why));
}

// Returns the tensors that differ, and who has the right value of each. `all` holds the hashes of
// all ranks. Throws ReplicaError if there is no majority.
std::vector<Difference> FindDifferences(const collectives::Communicator& communicator,
                                        const ReplicaTensors& tensors,
                                        std::span<const uint64_t> all, int64_t step) {
  std::vector<Difference> differences;
  for (size_t i = 0; i < tensors.hashes().size(); ++i) {
    Difference difference{.tensor = i, .values = {}};
    for (size_t at = i; at < all.size(); at += tensors.hashes().size())
      difference.values.push_back(all[at]);
    if (AllEqual(difference.values)) continue;
    const std::optional<int> source = LowestOfMajority(difference.values);
    if (!source) Fail(communicator, tensors, difference, step, "");
    difference.source = *source;
    differences.push_back(std::move(difference));
  }
  return differences;
}

// Logs one line for each rank that was repaired.
void LogRepairs(const collectives::Communicator& communicator, const ReplicaTensors& tensors,
                std::span<const Difference> differences, int64_t step) {
  constexpr size_t kMaxNames = 8;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    std::string names;
    size_t count = 0;
    for (const Difference& d : differences) {
      if (!d.IsWrong(rank) || ++count > kMaxNames) continue;
      names += (count > 1 ? ", " : "") + tensors.NameOf(d.tensor);
    }
    if (count == 0) continue;
    if (count > kMaxNames) names += fmt::format(" and {} more", count - kMaxNames);
    LogWarning("audit",
               "{}: its replica differed from the majority at step {} and was repaired: {}; check "
               "memory and network of this host if it happens again",
               communicator.NameOf(rank), step, names);
  }
}

}  // namespace

bool ReplicaAudit::Run(int64_t step, const std::function<void()>& on_wrong) {
  if (communicator_.size() == 1) return false;
  const ReplicaTensors tensors(replica_, statistics_);
  const collectives::Tag tag{.what = "audit", .step = step};
  if (AllEqual(AllGather(communicator_, tensors.Sum(), tag))) return false;
  const auto all = collectives::AllGatherValues<uint64_t>(communicator_, tensors.hashes(), tag);
  const std::vector<Difference> differences = FindDifferences(communicator_, tensors, all, step);
  const bool is_wrong = std::ranges::any_of(
      differences, [&](const Difference& d) { return d.IsWrong(communicator_.rank()); });
  if (is_wrong && on_wrong) on_wrong();
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const auto first =
        std::ranges::find_if(differences, [&](const Difference& d) { return d.IsWrong(rank); });
    if (first == differences.end()) continue;
    if (const auto previous = faults_.Record(rank, step))
      Fail(communicator_, tensors, *first, step,
           fmt::format("; {} was already wrong at step {}", communicator_.NameOf(rank), *previous));
  }
  for (const Difference& d : differences) tensors.CopyFrom(d.source, d.tensor, communicator_, tag);
  if (communicator_.rank() == 0) LogRepairs(communicator_, tensors, differences, step);
  return true;
}

}  // namespace carole::train
