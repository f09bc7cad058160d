// Ranks exchange these digests to compare their gradients without sending them: hashes, and
// sketches for ranks whose processors round differently.
//
// The sketch of a vector x is eight sums of +x_i or -x_i, with the same random signs on all ranks.
// The mean of the squared differences of two sketches estimates the squared distance of the
// vectors. With eight sums, the estimate of the distance is rarely wrong by more than a factor of
// 2. Source: Achlioptas 2003, "Database-friendly random projections".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/graph/variable_store.h"

namespace carole::train {

// The gradient of one variable. Trivially copyable, because ranks exchange it.
struct VariableDigest {
  uint64_t hash = 0;
  double squares = 0;  // sum of the squares; 0 without a sketch
  std::array<double, 8> sketch{};
};

// Digests of all gradients, in the order in which backward makes them final
// (VariableStore::ready_order()).
using GradientDigest = std::vector<VariableDigest>;

// Computes the digest of the gradients in the store, which are in host memory. Without sketches,
// only equal processors can be compared.
GradientDigest DigestGradients(const VariableStore& store, bool with_sketches);

// How close gradients must be: equal in all bits, or at a distance of at most `bound` times the
// norm of all gradients. Both gradients are also equal if neither is finite.
struct Tolerance {
  bool is_exact = true;
  double bound = 0;
};

// Returns the index of the first gradient that differs, in ready order; nullopt if they are equal
// within the tolerance.
std::optional<size_t> FirstDifference(const GradientDigest& a, const GradientDigest& b,
                                      const Tolerance& tolerance);

}  // namespace carole::train
