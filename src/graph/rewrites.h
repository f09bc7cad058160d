// Rewrites of the graph that fuse operations, so that less memory is read and written. Most of them
// apply only if the backend supports the fused operation. rewrites.cpp and gradient_rewrites.cpp
// explain each of them.
#pragma once

#include <map>
#include <string_view>

#include "src/backend/backend.h"
#include "src/graph/graph.h"

namespace carole {

// How often each rewrite of a function below was applied, by the rewrite's name.
using RewriteCounts = std::map<std::string_view, int>;

// Rewrites the forward graph. Call it before Differentiate(). Values that are marked as outputs
// must exist, so operations are not fused across them.
//   average_after_conv  average pool -> 1x1 convolution: swapped
//   batch_norm_add      batch norm -> add
//   conv_add            convolution -> add
//   batch_norm_relu     batch norm -> ReLU or ReLU6
//   conv_relu           convolution -> ReLU
//   linear_relu         fully connected layer -> ReLU
RewriteCounts Fuse(Graph& graph, const Backend& backend);

// Fuses sums of two gradients into the backward of a batch norm before or after the sum, which
// saves a pass over memory. Differentiate() calls this at its end.
//   sum_in_batch_norm     sum -> batch norm's backward
//   addend_in_batch_norm  batch norm's backward -> sum
RewriteCounts FuseGradientSums(Graph& graph);

// Rewrites the backward graph. Call it after Differentiate().
//   relu_before_max_pool        max pool's backward -> ReLU's backward: swapped
//   relu_in_filter_gradient     ReLU's backward -> gradient of a convolution's filter
//   relu_in_data_gradient       gradient of a convolution's input -> ReLU's backward
//   conv_bias_sum_in_relu       masked gradient [-> max pool's backward] -> gradient of a bias
//   linear_bias_sum_in_relu     as above, in a fully connected layer
//   slice_in_batch_norm         slice -> batch norms' backward
//   relu_bitmask_in_batch_norm  y of a batch norm -> its backward: replaced by a bit mask
RewriteCounts FuseGradients(Graph& graph, const Backend& backend);

}  // namespace carole
