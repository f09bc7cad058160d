// Adasum: combines the gradients of ranks so that parallel parts are averaged and orthogonal parts
// are added. Maleki et al. 2020, "Scaling distributed training with adaptive summation", section 3.
#pragma once

#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer/bucketing.h"

namespace carole::collectives {

// a = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b, with the dot products in double. If one gradient
// is zero, the result is the other. T is float or double.
template <typename T>
void AdasumPair(std::span<T> a, std::span<const T> b);

// Replaces `data` with the Adasum of all ranks' data; the result is the same on every rank.
// Combines each layer separately: first ranks 0 and 1, 2 and 3, …, then pairs of pairs. If the
// number of ranks is not a power of two, the last ranks join later. `layers` are ranges of `data`.
//
// Every rank receives the data of all ranks, which takes size() times the bytes of `data` in
// `gathered`. Keep `gathered` for the next call. Collective; blocks. Throws CommError if it fails.
template <typename T>
void AdasumOverRanks(Communicator& communicator, std::span<T> data, std::span<const Range> layers,
                     std::vector<T>& gathered, const Tag& tag);

}  // namespace carole::collectives
