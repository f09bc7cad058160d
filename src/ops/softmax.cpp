// Softmax and softmax cross-entropy (ops.h): shape inference and gradient rule.
#include "src/core/check.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

// The forward kernel has computed dlogits as its second output. It needs no scaling: the total loss
// is the sum of the losses, so the gradient of each loss is 1.
std::vector<ValueId> CrossEntropyGradient(const GradientArgs& args) {
  return {args.node.outputs[1], kNone, kNone};
}

}  // namespace

ValueId Softmax(Graph& g, ValueId x) {
  CAROLE_CHECK(g.shape(x).rank() == 2, "{}: softmax of {}", g.scope(), g.shape(x).ToString());
  return Append(g, op::kSoftmax, {}, {x});
}

ValueId SoftmaxCrossEntropy(Graph& g, ValueId logits, ValueId labels, ValueId weights,
                            const SoftmaxCrossEntropyAttributes& attributes) {
  const Shape rows{g.shape(logits)[0]};
  const Shape& shape = g.shape(labels);
  CAROLE_CHECK_EQ(shape, shape.rank() == 1 ? rows : g.shape(logits), "{}: labels", g.scope());
  CAROLE_CHECK_EQ(g.shape(weights), rows, "{}: weights", g.scope());
  return g
      .AddNode({.kind = op::kSoftmaxCrossEntropy,
                .attributes = attributes,
                .inputs = {logits, labels, weights},
                .gradient = CrossEntropyGradient},
               {{Shape{}, g.compute()}, {g.shape(logits), g.compute()}})
      .outputs[0];
}

}  // namespace carole::ops
