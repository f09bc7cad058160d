// The operations that nets are made of. Each function appends one operation to the graph and
// returns its result. src/backend/ops defines what the operations compute and their attributes.
//
// Append() serves every operation whose schema says all that is needed: the shapes of its outputs,
// and the kind of its backward operation. Others have a .cpp file with shape inference and gradient
// rule.
//
// Errors: if an image is too small for a window, these functions throw UsageError, which names the
// scope of the layer and the smallest size that works. If shapes do not match each other, they
// throw InternalError: that is a bug of the net.
#pragma once

#include <string>
#include <vector>

#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/dropout.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/backend/ops/gelu.h"
#include "src/backend/ops/layer_norm.h"
#include "src/backend/ops/lrn.h"
#include "src/backend/ops/normalize.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/sigmoid.h"
#include "src/backend/ops/silu.h"
#include "src/backend/ops/softmax.h"
#include "src/graph/graph.h"

namespace carole::ops {

// Appends an operation as its schema describes it, with OpSchema::infer and OpSchema::backward.
// Returns the first output.
ValueId Append(Graph& graph, OpKind kind, const OpAttributes& attributes,
               const std::vector<ValueId>& inputs);

// x (N,C,H,W), w (K,C/groups,R,S), bias (K) or kNone -> (N,K,P,Q)
ValueId Conv2d(Graph& graph, ValueId x, ValueId w, ValueId bias,
               const Conv2dAttributes& attributes);

// x (N,C), w (K,C), bias (K) or kNone -> (N,K)
ValueId Linear(Graph& graph, ValueId x, ValueId w, ValueId bias);

// x (N,C,H,W) or (N,C); the others (C). gamma, beta and residual may be kNone. Returns the
// normalized x, of the same shape.
ValueId BatchNorm(Graph& graph, const BatchNormInputs<ValueId>& inputs,
                  const BatchNormAttributes& attributes);

// x (N,C,H,W) or (N,C); gamma and beta (C) or kNone. Normalizes the channels of each pixel.
inline ValueId LayerNorm(Graph& graph, const LayerNormInputs<ValueId>& inputs,
                         const LayerNormAttributes& attributes = {}) {
  return Append(graph, op::kLayerNorm, attributes, List(inputs));
}

// min(max(x, 0), ceiling), any shape. A ceiling of 0 means that there is none.
ValueId Relu(Graph& graph, ValueId x, double ceiling = 0);
// x * relu6(x + 3) / 6, any shape.
ValueId HardSwish(Graph& graph, ValueId x);
// relu6(x + 3) * 0.16667, any shape.
ValueId HardSigmoid(Graph& graph, ValueId x);

// x * Phi(x), any shape. With `tanh`, an approximation of it.
inline ValueId Gelu(Graph& graph, ValueId x, bool tanh = false) {
  return Append(graph, op::kGelu, GeluAttributes{.tanh = tanh}, {x});
}

// x * sigmoid(x), any shape.
inline ValueId Silu(Graph& graph, ValueId x) { return Append(graph, op::kSilu, {}, {x}); }

// 1 / (1 + exp(-x)), any shape. With ScaleChannels(), it is the gate of squeeze-excite.
inline ValueId Sigmoid(Graph& graph, ValueId x) { return Append(graph, op::kSigmoid, {}, {x}); }

// a + b, of the same shape.
ValueId Add(Graph& graph, ValueId a, ValueId b);
// a + factor * b, of the same shape.
ValueId ScaledAdd(Graph& graph, ValueId a, ValueId b, double factor);
// factor * x, any shape.
ValueId Scale(Graph& graph, ValueId x, double factor);
// x (N,C,H,W) * scale (N,C,1,1) -> (N,C,H,W)
ValueId ScaleChannels(Graph& graph, ValueId x, ValueId scale);

// a * b, of the same shape.
ValueId Multiply(Graph& graph, ValueId a, ValueId b);
// Sets a scalar variable to a scalar, and returns the scalar.
inline ValueId Assign(Graph& graph, ValueId value, ValueId variable) {
  return Append(graph, op::kAssign, {}, {value, variable});
}

// x, any shape, rounded to the numbers of a quantization range.
inline ValueId FakeQuant(Graph& graph, const FakeQuantInputs<ValueId>& inputs,
                         const FakeQuantAttributes& attributes) {
  return Append(graph, op::kFakeQuant, attributes, List(inputs));
}
// A layer with batch norm, in two parts (folded_batch_norm.h). FoldWeights() returns the folded
// weights, and 1 / deviation by the moving statistics.
FoldWeightsOutputs<ValueId> FoldWeights(Graph& graph, const FoldWeightsInputs<ValueId>& inputs,
                                        const FoldedBatchNormAttributes& attributes);
inline ValueId FoldedBatchNorm(Graph& graph, const FoldedBatchNormInputs<ValueId>& inputs,
                               const FoldedBatchNormAttributes& attributes) {
  return Append(graph, op::kFoldedBatchNorm, attributes, List(inputs));
}

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
