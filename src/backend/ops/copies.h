// Copies of tensors to another shape, layout or type.
#pragma once

#include "src/backend/ops/op.h"

namespace carole::op {

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

}  // namespace carole::op
