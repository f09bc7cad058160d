// Finds a rank that computes wrong gradients: the next rank computes them again, from the same
// batch. cross_check.cpp explains who decides which of two ranks is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "src/graph/variable_store.h"
#include "src/train/integrity/batch_exchange.h"
#include "src/train/integrity/gradient_digest.h"
#include "src/train/integrity/rank_faults.h"

namespace carole::train {

struct CrossCheckOptions {
  int64_t every_n_steps = 0;  // 0: never
  // Processor and number of threads of this rank. Ranks with the same text must compute the same
  // bits. The gradients of other ranks are compared within a bound.
  std::string processor;
};

// One thread uses it.
class CrossCheck {
 public:
  // How to compute gradients. Both functions leave this rank's own gradients in the store, not
  // reduced over ranks.
  struct Compute {
    // Computes the step again: the gradients of this rank's own batch.
    std::function<void()> repeat;
    // Computes the gradients of another batch. May change gradients and running statistics.
    std::function<void(const CheckedBatch& batch)> recompute;
  };

  // `store` (in host memory), `communicator` and `faults` must outlive this. Collective.
  CrossCheck(collectives::Communicator& communicator, const VariableStore& store,
             RankFaults& faults, const CrossCheckOptions& options);

  // `step`: number of updates before this step.
  bool IsDue(int64_t step) const { return (step + 1) % options_.every_n_steps == 0; }

  // Checks the gradients in the store, which this rank computed from `mine`. The gradients of a
  // rank that was wrong are computed again. Other ranks find their gradients and running statistics
  // unchanged afterwards. Rank 0 logs a warning for each rank that was wrong. Collective.
  // Throws ReplicaError that names ranks, hosts and the first gradient that differs. It does so if
  // a rank was already wrong less than RankFaults::kWindow steps ago, and if nobody can decide
  // which of two ranks is wrong.
  void Run(const CheckedBatch& mine, int64_t step, const Compute& compute);

 private:
  // The digests of one rank: of its own gradients, and of those of the rank before it.
  struct Digests {
    GradientDigest own, previous;
  };
  // A rank that was wrong.
  struct Fault {
    size_t gradient = 0;     // the first one that differs
    bool is_own = false;     // its own gradients are wrong, not only those that it recomputed
    GradientDigest correct;  // of its own gradients, from its checker; empty unless is_own
  };
  using Faults = std::map<int, Fault>;  // by rank

  int size() const { return communicator_.size(); }
  int Next(int rank, int distance = 1) const { return (rank + distance) % size(); }
  Tolerance ToleranceOf(int a, int b) const;
  const std::string& NameOf(size_t gradient) const;
  void Save();
  void Restore() const;
  std::vector<GradientDigest> Gather(const GradientDigest& digest, int64_t step) const;
  GradientDigest DigestFrom(int rank, const GradientDigest& digest, int64_t step) const;
  bool AllSumsAgree(const Digests& mine, int64_t step) const;
  std::vector<Digests> Exchange(const Digests& mine, int64_t step) const;
  GradientDigest Recompute(const CheckedBatch& batch, const Compute& compute) const;
  int FindWrong(int rank, const GradientDigest& own, const GradientDigest& checked,
                const CheckedBatch& mine, int64_t step, const Compute& compute);
  void Record(int rank, const Fault& fault, int64_t step);
  void Repeat(const Faults& faults, int64_t step, const Compute& compute);

  collectives::Communicator& communicator_;
  const VariableStore& store_;
  RankFaults& faults_;
  const CrossCheckOptions options_;
  const double bound_;
  std::vector<uint64_t> processors_;  // hashes, by rank
  bool is_mixed_ = false;             // some processors differ
  BatchExchange exchange_;
  std::vector<std::byte> saved_gradients_, saved_statistics_;
};

// Returns null if checks are off or there is one rank. Collective. Throws UsageError if the store
// is in a device's memory.
std::unique_ptr<CrossCheck> MakeCrossCheck(collectives::Communicator& communicator,
                                           const VariableStore& store, RankFaults& faults,
                                           const CrossCheckOptions& options);

}  // namespace carole::train
