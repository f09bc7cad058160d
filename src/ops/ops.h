// Every differentiable operation: appends it to the graph and returns its result. Each .cpp beside
// this file holds the shape inference and the gradient rule of one family; src/backend/op.h says
// what each computes.
//
// A new one takes: its kind and its places in src/backend/op.h, its name in backend.cpp, and in
// op.cpp which places hold activations; a kernel in reference/ and, where it is worth one, in
// onednn/ and cuda/ (tables in reference.cpp, onednn/backend.cpp, cuda/makers.cpp); its function
// and gradient here; its cases in tests/backend/conformance_cases.h, which compare backends, and in
// tests/ops/gradient_test.cpp, whose finite differences alone find a wrong derivative; and, unless
// the defaults are right, its work in src/graph/flops.cpp and its Keras layer in
// src/export/keras_layers.cpp.
//
// Errors: an impossible shape throws UsageError that names the scope and the sizes that would work.
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

// x (N,C,H,W) or (N,C); the rest (C). gamma and beta may be kNone.
struct BatchNormInputs {
  ValueId x, gamma = kNone, beta = kNone, moving_mean, moving_variance;
};
ValueId BatchNorm(Graph& graph, const BatchNormInputs& inputs,
                  const BatchNormAttributes& attributes);

// min(max(x, 0), ceiling); 0: no ceiling
ValueId Relu(Graph& graph, ValueId x, double ceiling = 0);
// x * relu6(x + 3) / 6, and the gate relu6(x + 3) * 0.16667
ValueId HardSwish(Graph& graph, ValueId x);
ValueId HardSigmoid(Graph& graph, ValueId x);

ValueId Add(Graph& graph, ValueId a, ValueId b);
// a + factor * b, factor * x
ValueId ScaledAdd(Graph& graph, ValueId a, ValueId b, double factor);
ValueId Scale(Graph& graph, ValueId x, double factor);
// x (N,C,H,W) * scale (N,C,1,1) -> (N,C,H,W)
ValueId ScaleChannels(Graph& graph, ValueId x, ValueId scale);

// x (N,C,H,W) -> (N,C,P,Q). training: keeps the places of maxima for backward.
ValueId Pool2d(Graph& graph, ValueId x, const Pool2dAttributes& attributes, bool training);
// Over channels: x (N,C,H,W) -> the same.
ValueId Lrn(Graph& graph, ValueId x, const LrnAttributes& attributes);

// x (N,C,H,W) of bytes -> the same in what the graph computes in. No gradient.
ValueId Normalize(Graph& graph, ValueId x, const NormalizeAttributes& attributes);

// Dropout of elements, or of whole rows (drop path) with attributes.per_row.
ValueId Dropout(Graph& graph, ValueId x, const DropoutAttributes& attributes);

// x_i (N,C_i,H,W) -> (N,sum C_i,H,W)
ValueId Concat(Graph& graph, const std::vector<ValueId>& inputs);
// (N,C,H,W) -> (N,C,top + H + bottom,left + W + right); new pixels are 0, negative amounts cut off.
ValueId Pad2d(Graph& graph, ValueId x, const Padding& padding);

// Same elements, in NHWC order: (N,C,H,W) <-> (N,C*H*W) and the like.
ValueId Reshape(Graph& graph, ValueId x, const Shape& shape);

// x (N,K) -> probabilities (N,K). No gradient: predictions are no part of the loss.
ValueId Softmax(Graph& graph, ValueId x);

// logits (N,K), labels (N) int32, weights (N) -> the scalar loss
ValueId SoftmaxCrossEntropy(Graph& graph, ValueId logits, ValueId labels, ValueId weights,
                            const SoftmaxCrossEntropyAttributes& attributes);

}  // namespace carole::ops
