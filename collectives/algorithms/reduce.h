// The arithmetic of all-reduce: sums of memory ranges, vectorized for the CPU that runs it.
//
// T is float or double. The order of additions depends only on the number of inputs, and each
// addition rounds once. So every CPU and every vector width gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace carole::collectives {

// into[i] += from[i].
template <typename T>
void AddTo(T* into, const T* from, size_t count);

// into[i] = ranks[0][i] + ranks[1][i] + … + ranks[n-1][i], added as a binary tree. The left subtree
// holds the largest power of two below n: for n = 5, ((0+1)+(2+3))+4. `into` may be one of the
// ranks.
template <typename T>
void SumRanks(T* const* ranks, size_t n, T* into, size_t count);

// Writes the same sum to every rank's range, in one pass over memory.
template <typename T>
void SumRanksToAll(T* const* ranks, size_t n, size_t count);

// into[i] = from[i] as bf16, which is the upper half of fp32. Rounds to nearest, ties to even; NaN
// stays NaN.
void RoundToBf16(const float* from, uint16_t* into, size_t count);

// into[i] = from[i], exact.
void WidenBf16(const uint16_t* from, float* into, size_t count);

// into[i] += from[i], added in fp32.
void AddBf16To(float* into, const uint16_t* from, size_t count);

}  // namespace carole::collectives
