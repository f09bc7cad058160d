// Batch normalization (ops.h): shape inference and gradient rule; folding.
#include "src/core/check.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> Gradient(const GradientArgs& args) {
  Graph& g = args.graph;
  const Node& node = args.node;
  const auto& attributes = node.attributes.as<BatchNormAttributes>();
  CAROLE_CHECK(attributes.training, "{}: a batch norm in inference mode has no gradient",
               node.name);
  const auto in = Named<BatchNormInputs>(node.inputs);
  const auto out = Named<BatchNormOutputs>(node.outputs);
  const bool residual = in.residual != kNone;
  const Shape channels = g.shape(out.mean);
  // Without a ReLU, the gradient of the residual is dy itself and needs no output.
  const bool masked_residual = residual && attributes.relu;
  const bool wants_dresidual = args.wanted[kPosition<BatchNormInputs>.residual];
  // The backward kernel must know where the fused ReLU gave 0. If a residual was added before the
  // ReLU, it reads y. Without a residual it computes y again from x, gamma and beta.
  const Node& backward = g.AddNode(
      {.kind = op::kBatchNormBackward,
       .attributes = attributes,
       .inputs = List(
           BatchNormBackwardInputs<ValueId>{.dy = args.dy[0],
                                            .x = in.x,
                                            .y = attributes.relu && residual ? out.y : kNone,
                                            .gamma = in.gamma,
                                            .beta = attributes.relu && !residual ? in.beta : kNone,
                                            .mean = out.mean,
                                            .rstd = out.rstd})},
      List(BatchNormBackwardOutputs<Graph::OutputShape>{
          .dx = {g.shape(in.x), g.compute()},
          .dgamma = {channels, g.compute(), in.gamma != kNone},
          .dbeta = {channels, g.compute(), in.beta != kNone},
          .dresidual = {g.shape(in.x), g.compute(), masked_residual && wants_dresidual}}));
  const auto d = Named<BatchNormBackwardOutputs>(backward.outputs);
  return List(BatchNormInputs<ValueId>{.x = d.dx,
                                       .gamma = d.dgamma,
                                       .beta = d.dbeta,
                                       .residual = masked_residual ? d.dresidual
                                                   : residual      ? args.dy[0]
                                                                   : kNone});
}

}  // namespace

ValueId BatchNorm(Graph& g, const BatchNormInputs<ValueId>& in,
                  const BatchNormAttributes& attributes) {
  const Shape& shape = g.shape(in.x);
  const Shape channels{shape[1]};
  for (ValueId id : {in.gamma, in.beta, in.moving_mean, in.moving_variance}) {
    if (id != kNone)
      CAROLE_CHECK_EQ(g.shape(id), channels, "{}: batch norm of {}", g.scope(), shape.ToString());
  }
  return g
      .AddNode({.kind = op::kBatchNorm,
                .attributes = attributes,
                .inputs = List(in),
                .gradient = Gradient},
               {{shape, g.compute()},
                {channels, g.compute(), attributes.training},
                {channels, g.compute(), attributes.training}})
      .outputs[0];
}

FoldWeightsOutputs<ValueId> FoldWeights(Graph& g, const FoldWeightsInputs<ValueId>& in,
                                        const FoldedBatchNormAttributes& attributes) {
  const ValueId folded = Append(g, op::kFoldWeights, attributes, List(in));
  return Named<FoldWeightsOutputs>(g.nodes()[g.value(folded).producer].outputs);
}

}  // namespace carole::ops
