#include "src/ops/gradients.h"

#include <tuple>

#include "src/backend/ops/conv2d.h"

namespace carole::ops {

std::vector<ValueId> ConvOrLinearGradient(const GradientArgs& args, bool relu,
                                          const OpAttributes& backward, OpKind filter_kind,
                                          OpKind data_kind) {
  Graph& g = args.graph;
  const auto [x, w, bias] =
      std::tuple(args.node.inputs[0], args.node.inputs[1], args.node.inputs[2]);
  const ValueId dy = relu ? ReluGradient(g, args.dy[0], args.node.outputs[0]) : args.dy[0];
  std::vector<ValueId> dx(args.node.inputs.size(), kNone);
  if (args.wanted[1] || args.wanted[2]) {
    const Node& node =
        g.AddNode({.kind = filter_kind, .attributes = backward, .inputs = {x, dy}},
                  {{g.shape(w), g.compute()}, {{g.shape(w)[0]}, g.compute(), bias != kNone}});
    dx[1] = node.outputs[0];
    dx[2] = node.outputs[1];
  }
  if (args.wanted[0]) {
    dx[0] = g.AddResult({.kind = data_kind, .attributes = backward, .inputs = {dy, w}}, g.shape(x));
  }
  if (dx.size() > kPosition<Conv2dInputs>.residual) dx[kPosition<Conv2dInputs>.residual] = dy;
  return dx;
}

}  // namespace carole::ops
