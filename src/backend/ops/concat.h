// Concatenation along channels, and ranges of channels.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// y is the channels [begin, begin + number of channels of y) of x.
struct SliceAttributes {
  int64_t begin = 0;
};

namespace op {

// x (N,C_0,H,W), (N,C_1,H,W), … -> y (N,sum C_i,H,W)
inline constexpr OpSchema kConcat{
    .name = "concat", .inputs = {Activation("x")}, .outputs = {Activation("y")}, .repeats = true};
inline constexpr OpSchema kSlice{
    .name = "slice", .inputs = {Activation("x")}, .outputs = {Activation("y")}};

}  // namespace op

}  // namespace carole
