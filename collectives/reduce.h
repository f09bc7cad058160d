// The arithmetic of all-reduce: sums of memory ranges, vectorised for the CPU at hand.
//
// T is float or double. Elements are added in the order of the inputs, one rounding each, so that
// every CPU and every vector width gives the same bits.
#pragma once

#include <cstddef>

namespace carole::collectives {

// into[i] += from[i].
template <typename T>
void AddTo(T* into, const T* from, size_t count);

// into[i] = ranks[0][i] + ranks[1][i] + … + ranks[n-1][i]. `into` may be one of the ranks.
template <typename T>
void SumRanks(T* const* ranks, size_t n, T* into, size_t count);

// The same sum, written to every rank's range: one pass over memory.
template <typename T>
void SumRanksToAll(T* const* ranks, size_t n, size_t count);

}  // namespace carole::collectives
