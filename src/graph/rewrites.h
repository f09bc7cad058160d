// Rewrites of the forward graph that make one kernel of several operations, where the backend
// supports it.
#pragma once

#include "src/backend/backend.h"
#include "src/graph/graph.h"

namespace carole {

struct RewriteCounts {
  int batch_norm_relu = 0;
  int batch_norm_add = 0;  // with or without ReLU behind
  int conv_add = 0;        // likewise
  int conv_relu = 0;       // convolution or linear, + bias + ReLU
  int averages_last = 0;
};

// Call before Differentiate(). Values marked as outputs are kept, so what they cut through stays
// unfused.
//   batch norm -> ReLU, ReLU6;  convolution | linear (+ bias) -> ReLU;
//   batch norm | convolution (+ bias) -> add -> [ReLU]
// And an average of as many pixels as it is of -> 1x1 convolution: the other way round, where there
// are fewer channels to average then. Both are linear, so that only rounding tells.
RewriteCounts Fuse(Graph& graph, const Backend& backend);

// Differentiate() ends with it. Sums of two gradients are made by the backward of a batch norm
// beside them, which saves a pass over the memory. Returns how many.
//   sum -> batch norm: where that stores the sum anyway for its residual, or has no ReLU and stores
//                      it for all who read it
//   batch norm -> sum: where the other part is there before
int FuseGradientSums(Graph& graph);

struct GradientRewriteCounts {
  int masks_before_maxima = 0;
  int masks_in_filter_gradients = 0;
  int masks_in_convolutions = 0;
  int biases_in_relus = 0;
  int slices_in_batch_norms = 0;
  int bits_for_batch_norms = 0;
};

// Call after Differentiate(). What a pass over a gradient can be spared:
//   maximum's backward -> ReLU's backward: the other way round, on the smaller map, since a maximum
//     sends its gradient to the pixel whose value it is; then nobody reads the larger map again
//   ReLU's backward -> filter's gradient of a convolution, as of a net's first layer: in one
//     operation, where the backend supports it
//   data's gradient of a convolution -> ReLU's backward: in one operation, where the backend
//     supports it
//   either [-> maximum's backward] -> filter's gradient with that of a bias: the first sums the
//     bias's, where the backend supports it
//   slice -> batch norms' backward, as behind a concatenation: these read their channels of the
//     whole
//   y -> batch norm's backward: bits that forward leaves, where the backend supports it
GradientRewriteCounts FuseGradients(Graph& graph, const Backend& backend);

}  // namespace carole
