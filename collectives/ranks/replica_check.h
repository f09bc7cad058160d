// Makes the replicas (each rank's weights) equal at the start, and checks that they stay equal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "src/core/error.h"

namespace carole::collectives {

// The replicas of ranks differ and cannot be repaired, or a rank computes wrong results again and
// again. The text names the rank, its host and the first variable that differs.
// Unlike after other CommErrors, the state of no rank may be saved.
class ReplicaError : public CommError {
 public:
  using CommError::CommError;
};

// Hashes the bits of the values. The order of the elements matters.
uint64_t HashOfFloats(std::span<const float> values);

// Compares a hash of `weights` among all ranks. Collective. Throws ReplicaError if replicas differ;
// the error names the ranks in the minority and both hashes. `what` names the data ("weights") and
// must be a literal.
void VerifyReplicas(Communicator& communicator, std::span<const float> weights,
                    std::string_view what, int64_t step = 0);

// Describes which ranks differ from the majority: "rank 1 (host) got 0x…, want 0x… as the 3
// others". Lists all ranks if no value has the most votes. values[r] belongs to rank r; some must
// differ.
std::string DescribeDifferingRanks(const Communicator& communicator,
                                   std::span<const uint64_t> values);

// Copies rank 0's weights to all ranks, then calls VerifyReplicas(). Collective.
void BroadcastAndVerify(Communicator& communicator, std::span<float> weights,
                        std::string_view what = "weights");

}  // namespace carole::collectives
