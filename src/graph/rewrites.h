// Rewrites of the graph that fuse operations, so that less memory is read and written. Most of them
// apply only if the backend supports the fused operation. rewrites.cpp explains each of them.
#pragma once

#include "src/backend/backend.h"
#include "src/graph/graph.h"

namespace carole {

// How often each rewrite of Fuse() was applied.
struct RewriteCounts {
  int batch_norm_relu = 0;
  int batch_norm_add = 0;  // with or without a ReLU after the add
  int conv_add = 0;        // with or without a ReLU after the add
  int conv_relu = 0;       // a ReLU after a convolution or fully connected layer
  int averages_after_convs = 0;
};

// Rewrites the forward graph. Call it before Differentiate(). Values that are marked as outputs
// must exist, so operations are not fused across them.
//   batch norm -> ReLU or ReLU6
//   convolution or linear -> ReLU
//   batch norm or convolution -> add [-> ReLU]
//   average pool -> 1x1 convolution: swapped
RewriteCounts Fuse(Graph& graph, const Backend& backend);

// Fuses sums of two gradients into the backward of a batch norm before or after the sum, which
// saves a pass over memory. Differentiate() calls this at its end. Returns the number of sums.
//   sum -> batch norm's backward
//   batch norm's backward -> sum
int FuseGradientSums(Graph& graph);

// How often each rewrite of FuseGradients() was applied.
struct GradientRewriteCounts {
  int relu_before_max_pool = 0;
  int relu_in_filter_gradients = 0;
  int relu_in_data_gradients = 0;
  int bias_sums_in_relu = 0;
  int slices_in_batch_norm = 0;
  int relu_bitmasks = 0;
};

// Rewrites the backward graph. Call it after Differentiate().
//   max pool's backward -> ReLU's backward: swapped
//   ReLU's backward -> gradient of a convolution's filter
//   gradient of a convolution's input -> ReLU's backward
//   masked gradient [-> max pool's backward] -> gradient of a bias
//   slice -> batch norms' backward
//   y of a batch norm -> its backward: replaced by a bit mask
GradientRewriteCounts FuseGradients(Graph& graph, const Backend& backend);

}  // namespace carole
