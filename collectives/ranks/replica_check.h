// All ranks train the same replica: made so at the start, and checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/communicator.h"

namespace carole::collectives {

// Every bit counts, and the order of elements too.
uint64_t HashOfFloats(std::span<const float> values);

// Compares a hash of `weights` over all ranks. Throws CommError that names the ranks in the
// minority and both hashes. `what` names the data ("weights"); a literal.
void VerifyReplicas(Communicator& communicator, std::span<const float> weights,
                    std::string_view what, int64_t step = 0);

// Of the ranks' values, which differ: "rank 1 (host) got 0x…, want 0x… as the 3 others", or all of
// them where none leads.
std::string DescribeOdd(const Communicator& communicator, std::span<const uint64_t> values);

// Rank 0's weights to all ranks, then VerifyReplicas().
void BroadcastAndVerify(Communicator& communicator, std::span<float> weights,
                        std::string_view what = "weights");

}  // namespace carole::collectives
