// Multiplication by one factor for each channel of each image, as in squeeze-excite.
#pragma once

#include "src/backend/ops/op.h"
#include "src/core/check.h"

namespace carole::op {

inline std::vector<TensorSpec> ScaleChannelsOutputs(const OpSpec& spec, std::string_view scope) {
  const Shape &x = spec.inputs[0].shape, &scale = spec.inputs[1].shape;
  CAROLE_CHECK_EQ(scale, (Shape{x[0], x[1], 1, 1}), "{}: channel factors of {}", scope,
                  x.ToString());
  return {{.shape = x, .dtype = spec.inputs[0].dtype}};
}

// dx = dy * scale; dscale = sums of dy * x over pixels
inline constexpr OpSchema kScaleChannelsBackward{
    .name = "scale_channels_backward",
    .inputs = {Activation("dy"), Activation("x"), Activation("scale")},
    .outputs = {Optional(Activation("dx")), Optional(Activation("dscale"))}};
// y = x * scale, with scale (N,C,1,1)
inline constexpr OpSchema kScaleChannels{.name = "scale_channels",
                                         .inputs = {Activation("x"), Activation("scale")},
                                         .outputs = {Activation("y")},
                                         .infer = ScaleChannelsOutputs,
                                         .backward = &kScaleChannelsBackward};

}  // namespace carole::op
