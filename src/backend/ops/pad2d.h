// Padding of images with zeros, and cropping.
#pragma once

#include "src/backend/ops/op.h"
#include "src/backend/ops/window.h"

namespace carole {

// y[n,c,p,q] = x[n,c,p - top,q - left], and 0 where x has no such pixel. Negative padding removes
// pixels, so the gradient is the same operation with negated padding.
struct Pad2dAttributes {
  Padding padding;
};

namespace op {

inline constexpr OpSchema kPad2d{
    .name = "pad2d", .inputs = {Activation("x")}, .outputs = {Activation("y")}};

}  // namespace op

}  // namespace carole
