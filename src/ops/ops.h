// The operations that nets are made of. Each function appends one operation to the graph and
// returns its result. It infers the shape of the result and sets the gradient rule.
// src/backend/op.h defines what the operations compute and their attributes. README.md says how to
// add one.
//
// The .cpp files in this folder each contain one family of operations.
//
// Errors: if an image is too small for a window, these functions throw UsageError, which names the
// scope of the layer and the smallest size that works. If shapes do not match each other, they
// throw InternalError: that is a bug of the net.
#pragma once

#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace carole::ops {

// x (N,C,H,W), w (K,C/groups,R,S), bias (K) or kNone -> (N,K,P,Q)
ValueId Conv2d(Graph& graph, ValueId x, ValueId w, ValueId bias,
               const Conv2dAttributes& attributes);

// x (N,C), w (K,C), bias (K) or kNone -> (N,K)
ValueId Linear(Graph& graph, ValueId x, ValueId w, ValueId bias);

// x (N,C,H,W) or (N,C); the others (C). gamma and beta may be kNone.
struct BatchNormInputs {
  ValueId x, gamma = kNone, beta = kNone, moving_mean, moving_variance;
};
// Returns the normalized x, of the same shape.
ValueId BatchNorm(Graph& graph, const BatchNormInputs& inputs,
                  const BatchNormAttributes& attributes);

// min(max(x, 0), ceiling), any shape. A ceiling of 0 means that there is none.
ValueId Relu(Graph& graph, ValueId x, double ceiling = 0);
// x * relu6(x + 3) / 6, any shape.
ValueId HardSwish(Graph& graph, ValueId x);
// relu6(x + 3) * 0.16667, any shape.
ValueId HardSigmoid(Graph& graph, ValueId x);

// a + b, of the same shape.
ValueId Add(Graph& graph, ValueId a, ValueId b);
// a + factor * b, of the same shape.
ValueId ScaledAdd(Graph& graph, ValueId a, ValueId b, double factor);
// factor * x, any shape.
ValueId Scale(Graph& graph, ValueId x, double factor);
// x (N,C,H,W) * scale (N,C,1,1) -> (N,C,H,W)
ValueId ScaleChannels(Graph& graph, ValueId x, ValueId scale);

// x (N,C,H,W) -> (N,C,P,Q). With `training`, max pooling also stores the positions of the maxima,
// which backward needs.
ValueId Pool2d(Graph& graph, ValueId x, const Pool2dAttributes& attributes, bool training);
// Local response normalization over channels: x (N,C,H,W) -> (N,C,H,W)
ValueId Lrn(Graph& graph, ValueId x, const LrnAttributes& attributes);

// Converts images of bytes to the type that the graph computes in, and normalizes them:
// x (N,C,H,W) -> (N,C,H,W). Has no gradient.
ValueId Normalize(Graph& graph, ValueId x, const NormalizeAttributes& attributes);

// Dropout of single elements, or of whole rows (drop path) if attributes.per_row is set. Any shape.
ValueId Dropout(Graph& graph, ValueId x, const DropoutAttributes& attributes);

// Concatenation along channels: x_i (N,C_i,H,W) -> (N,sum C_i,H,W). Returns a single input as it
// is.
ValueId Concat(Graph& graph, const std::vector<ValueId>& inputs);
// (N,C,H,W) -> (N,C,top + H + bottom,left + W + right). New pixels are 0. Negative amounts crop.
ValueId Pad2d(Graph& graph, ValueId x, const Padding& padding);

// Returns the same elements, in NHWC order, with another shape: for instance (N,C,H,W) ->
// (N,C*H*W).
ValueId Reshape(Graph& graph, ValueId x, const Shape& shape);

// x (N,K) -> probabilities (N,K). Has no gradient, because predictions are not part of the loss.
ValueId Softmax(Graph& graph, ValueId x);

// logits (N,K), labels (N) int32 or soft labels (N,K), weights (N) -> the loss, a scalar. Soft
// labels have the type of the logits, and each row sums to 1.
ValueId SoftmaxCrossEntropy(Graph& graph, ValueId logits, ValueId labels, ValueId weights,
                            const SoftmaxCrossEntropyAttributes& attributes);

}  // namespace carole::ops
