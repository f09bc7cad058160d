// Layer normalization over channels.
#pragma once

#include "src/backend/ops/op.h"
#include "src/core/check.h"

namespace carole {

// Layer normalization over the channels of each pixel (Ba, Kiros & Hinton 2016), as ConvNeXt and
// ViT use it. x is (N,C,H,W) or (N,C); gamma and beta are (C). For each pixel, with mean and biased
// variance of its C channels:
//   xhat = (x - mean) * rstd, rstd = 1/sqrt(variance + epsilon);
//   y = gamma * xhat + beta; absent gamma: 1, absent beta: 0.
// Backward, with g = gamma * dy and means over channels:
//   dx = rstd * (g - mean(g) - xhat * mean(g * xhat));
//   dgamma = sum dy * xhat and dbeta = sum dy over pixels.
// Backward computes mean and rstd from x again: a pixel's channels fit into the cache, so this is
// cheaper than to store them.
struct LayerNormAttributes {
  double epsilon = 1e-6;
};

template <typename T>
struct LayerNormInputs {
  T x = Absent<T>(), gamma = Absent<T>(), beta = Absent<T>();
};
template <typename T>
struct LayerNormBackwardInputs {
  T dy = Absent<T>(), x = Absent<T>(), gamma = Absent<T>();
};
template <typename T>
struct LayerNormBackwardOutputs {
  T dx = Absent<T>(), dgamma = Absent<T>(), dbeta = Absent<T>();
};

namespace op {

inline int64_t LayerNormFlops(const OpSpec& spec) { return 8 * spec.outputs[0].shape.size(); }

inline std::vector<TensorSpec> LayerNormOutputs(const OpSpec& spec, std::string_view scope) {
  const auto in = Named<LayerNormInputs>(spec.inputs);
  for (const TensorSpec& t : {in.gamma, in.beta}) {
    if (t.present)
      CAROLE_CHECK_EQ(t.shape, Shape{in.x.shape[1]}, "{}: layer norm of {}", scope,
                      in.x.shape.ToString());
  }
  return {{.shape = in.x.shape, .dtype = in.x.dtype}};
}

inline constexpr OpSchema kLayerNormBackward{
    .name = "layer_norm_backward",
    .inputs =
        LayerNormBackwardInputs<Port>{
            .dy = Activation("dy"), .x = Activation("x"), .gamma = Optional(Other("gamma"))},
    .outputs = LayerNormBackwardOutputs<Port>{.dx = Optional(Activation("dx")),
                                              .dgamma = Optional(Other("dgamma")),
                                              .dbeta = Optional(Other("dbeta"))}};
inline constexpr OpSchema kLayerNorm{
    .name = "layer_norm",
    .inputs = LayerNormInputs<Port>{.x = Activation("x"),
                                    .gamma = Optional(Other("gamma")),
                                    .beta = Optional(Other("beta"))},
    .outputs = {Activation("y")},
    .flops = LayerNormFlops,
    .infer = LayerNormOutputs,
    .backward = &kLayerNormBackward};

}  // namespace op

}  // namespace carole
