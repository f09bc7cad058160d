// Finds a rank whose replica has diverged silently, through a bit flip in memory or a reduction
// that went wrong, and repairs it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "src/train/integrity/rank_faults.h"
#include "src/train/state/state.h"

namespace carole::train {

// Compares the replicas of all ranks by hashes. Each rank sends one number; only if these differ,
// one number per tensor.
class ReplicaAudit {
 public:
  // The audit compares weights, slots, moving averages, the numbers of the optimizer and the loss
  // scale. It compares untrained variables only if they are in `statistics` (indexes into the
  // store). All arguments must outlive this.
  ReplicaAudit(collectives::Communicator& communicator, const ReplicaView& replica,
               std::vector<int> statistics, RankFaults& faults)
      : communicator_(communicator),
        replica_(replica),
        statistics_(std::move(statistics)),
        faults_(faults) {}

  // Compares the replicas after `step` updates. If a strict majority of at least three ranks agrees
  // on each tensor, the other ranks get its bytes, and rank 0 logs a warning. `on_wrong` is called
  // on each rank that is in a minority, before its replica changes; it may be empty. Returns true
  // if any rank was repaired; 16-bit copies of the weights are then out of date. Collective; no
  // step may be in flight. Throws ReplicaError that names the first tensor that differs and the
  // ranks: if there is no such majority, or if a rank was already wrong less than
  // RankFaults::kWindow steps ago.
  bool Run(int64_t step, const std::function<void()>& on_wrong = {});

 private:
  collectives::Communicator& communicator_;
  const ReplicaView replica_;
  const std::vector<int> statistics_;
  RankFaults& faults_;
};

}  // namespace carole::train
