// Copies of tensors to another shape, layout or type, or to a variable.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// Scalars.
template <typename T>
struct AssignInputs {
  T value = Absent<T>(), variable = Absent<T>();
};

namespace op {

inline int64_t NoFlops(const OpSpec&) { return 0; }

// The same elements, in NHWC order, in another shape.
inline constexpr OpSchema kReshape{
    .name = "reshape", .inputs = {Activation("x")}, .outputs = {Activation("y")}, .flops = NoFlops};
// The same shape in another layout or type.
inline constexpr OpSchema kReorder{
    .name = "reorder", .inputs = {Activation("x")}, .outputs = {Activation("y")}};
// Several tensors of one type in another type. Saves launches on GPUs.
inline constexpr OpSchema kCasts{
    .name = "casts", .inputs = {Activation("x")}, .outputs = {Activation("x")}, .repeats = true};

// Copies a value to a variable that the host sets in each step, and returns it. A node that reads
// the result runs after the variable has the value.
inline constexpr OpSchema kAssign{
    .name = "assign",
    .inputs = AssignInputs<Port>{.value = Other("value"), .variable = Other("variable")},
    .outputs = {Other("y")}};

}  // namespace op

}  // namespace carole
