// Reads tensors whose layout only their backend understands, without the backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/graph/variable_store.h"

namespace carole::train {

// The places of a tensor's elements. The element with coordinates (i0, i1, ...) is element
// i0 * plain_strides[0] + i1 * plain_strides[1] + ... of TensorFlow's order, and element
// steps[0][i0] + steps[1][i1] + ... of the arena, counted from the tensor's first element.
struct ElementOrder {
  std::vector<int64_t> plain_strides;
  std::vector<std::vector<int64_t>> steps;

  int64_t size() const;
};

// Finds the order of a variable's elements by a probe: it lets the backend reorder known values.
// Blocked layouts, such as nChw16c of oneDNN, are sums of one term per dimension, so a table for
// each dimension describes them. Throws ConfigError if a layout is no such sum.
ElementOrder FindElementOrder(const Backend& backend, const VariableSlice& variable);

// Returns the elements in TensorFlow's order. `arena` begins at the tensor's first element. Throws
// DataError if the order leads out of `arena`, which happens only if memory was damaged.
std::vector<float> ReadElements(std::span<const float> arena, const ElementOrder& order);

}  // namespace carole::train
