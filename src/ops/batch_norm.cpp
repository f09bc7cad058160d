// Batch normalization (ops.h): shape inference and gradient rule.
#include "src/core/check.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

using In = BatchNormIndices;
using Back = BatchNormBackwardIndices;

std::vector<ValueId> Gradient(const GradientArgs& args) {
  Graph& g = args.graph;
  const Node& node = args.node;
  const auto& attributes = std::get<BatchNormAttributes>(node.attributes);
  CAROLE_CHECK(attributes.training, "{}: a batch norm in inference mode has no gradient",
               node.name);
  const ValueId x = node.inputs[In::kX];
  const bool residual = node.inputs[In::kResidual] != kNone;
  // The backward kernel must know where the fused ReLU gave 0. If a residual was added before the
  // ReLU, it reads y. Without a residual it computes y again from x, gamma and beta.
  const ValueId y = attributes.relu && residual ? node.outputs[In::kY] : kNone;
  const ValueId beta = attributes.relu && !residual ? node.inputs[In::kBeta] : kNone;
  const Shape channels = g.shape(node.outputs[In::kMean]);
  const bool has_beta = node.inputs[In::kBeta] != kNone;
  // Without a ReLU, the gradient of the residual is dy itself and needs no output.
  const bool masked_residual = residual && attributes.relu;
  const Node& backward =
      g.AddNode({.kind = OpKind::kBatchNormBackward,
                 .attributes = attributes,
                 .inputs = {args.dy[0], x, y, node.inputs[In::kGamma], beta,
                            node.outputs[In::kMean], node.outputs[In::kRstd], kNone, kNone, kNone}},
                {{g.shape(x), g.compute()},
                 {channels, g.compute(), node.inputs[In::kGamma] != kNone},
                 {channels, g.compute(), has_beta},
                 {g.shape(x), g.compute(), masked_residual && args.wanted[In::kResidual]}});
  std::vector<ValueId> dx(In::kInputs, kNone);
  dx[In::kX] = backward.outputs[Back::kDx];
  dx[In::kGamma] = backward.outputs[Back::kDgamma];
  dx[In::kBeta] = backward.outputs[Back::kDbeta];
  if (residual)
    dx[In::kResidual] = attributes.relu ? backward.outputs[Back::kDresidual] : args.dy[0];
  return dx;
}

}  // namespace

ValueId BatchNorm(Graph& g, const BatchNormInputs& in, const BatchNormAttributes& attributes) {
  const Shape& shape = g.shape(in.x);
  const Shape channels{shape[1]};
  for (ValueId id : {in.gamma, in.beta, in.moving_mean, in.moving_variance}) {
    if (id != kNone)
      CAROLE_CHECK_EQ(g.shape(id), channels, "{}: batch norm of {}", g.scope(), shape.ToString());
  }
  return g
      .AddNode({.kind = OpKind::kBatchNorm,
                .attributes = attributes,
                .inputs = {in.x, in.gamma, in.beta, kNone, in.moving_mean, in.moving_variance},
                .gradient = Gradient},
               {{shape, g.compute()},
                {channels, g.compute(), attributes.training},
                {channels, g.compute(), attributes.training}})
      .outputs[BatchNormIndices::kY];
}

}  // namespace carole::ops
