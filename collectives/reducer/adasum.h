// Adasum: combines ranks' gradients so that parallel parts are averaged and orthogonal parts are
// added. Maleki et al. 2020, "Scaling distributed training with adaptive summation", section 3.
#pragma once

#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer/bucketing.h"

namespace carole::collectives {

// a = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b, with the sums in double. A gradient that is zero
// leaves the other as it is. T is float or double.
template <typename T>
void AdasumPair(std::span<T> a, std::span<const T> b);

// Replaces `data`, on every rank the same, by the combination of all ranks' data: each layer by
// itself, ranks 0 and 1, 2 and 3, … first, then pairs of pairs; with other numbers than powers of
// two the last ranks join later. Every rank gets all ranks' data, so size() times its bytes move
// and lie in `gathered`, which the caller keeps for the next call. Collective, blocks.
template <typename T>
void AdasumOverRanks(Communicator& communicator, std::span<T> data, std::span<const Range> layers,
                     std::vector<T>& gathered, const Tag& tag);

}  // namespace carole::collectives
