// The arithmetic of all-reduce: sums of memory ranges, vectorized for the CPU at hand.
//
// T is float or double. Elements are added in an order that depends on the number of inputs alone,
// one rounding each, so that every CPU and every vector width gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace carole::collectives {

// into[i] += from[i].
template <typename T>
void AddTo(T* into, const T* from, size_t count);

// into[i] = ranks[0][i] + ranks[1][i] + … + ranks[n-1][i], added as a binary tree: the left subtree
// holds the largest power of two below n, ((0+1)+(2+3))+4. `into` may be one of the ranks.
template <typename T>
void SumRanks(T* const* ranks, size_t n, T* into, size_t count);

// The same sum, written to every rank's range: one pass over memory.
template <typename T>
void SumRanksToAll(T* const* ranks, size_t n, size_t count);

// bf16 is the upper half of fp32. Rounds to nearest, ties to even; NaN stays NaN.
void RoundToBf16(const float* from, uint16_t* into, size_t count);

// into[i] = from[i], exact.
void WidenBf16(const uint16_t* from, float* into, size_t count);

// into[i] += from[i], added in fp32.
void AddBf16To(float* into, const uint16_t* from, size_t count);

}  // namespace carole::collectives
