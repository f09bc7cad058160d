#include <tuple>

#include "src/core/check.h"
#include "src/ops/gradients.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> Gradient(const GradientArgs& args) {
  Graph& g = args.graph;
  const bool relu = std::get<LinearAttributes>(args.node.attributes).relu;
  const auto [x, w, bias] =
      std::tuple(args.node.inputs[0], args.node.inputs[1], args.node.inputs[2]);
  const ValueId dy = relu ? ReluGradient(g, args.dy[0], args.node.outputs[0]) : args.dy[0];
  std::vector<ValueId> dx(3, kNone);
  if (args.wanted[1] || args.wanted[2]) {
    const Node& node =
        g.AddNode({.kind = OpKind::kLinearBackwardFilter,
                   .attributes = LinearAttributes{},
                   .inputs = {x, dy},
                   .outputs = {},
                   .name = {}},
                  {{g.shape(w), g.compute()}, {{g.shape(w)[0]}, g.compute(), bias != kNone}});
    dx[1] = node.outputs[0];
    dx[2] = node.outputs[1];
  }
  if (args.wanted[0]) {
    dx[0] = g.AddNode({.kind = OpKind::kLinearBackwardData,
                       .attributes = LinearAttributes{},
                       .inputs = {dy, w},
                       .outputs = {},
                       .name = {}},
                      {{g.shape(x), g.compute()}})
                .outputs[0];
  }
  return dx;
}

}  // namespace

ValueId Linear(Graph& g, ValueId x, ValueId w, ValueId bias) {
  CAROLE_CHECK(g.shape(x).rank() == 2 && g.shape(w).rank() == 2, "{}: linear of {} with {}",
               g.scope(), g.shape(x).ToString(), g.shape(w).ToString());
  CAROLE_CHECK_EQ(g.shape(x)[1], g.shape(w)[1], "{}: columns of the input", g.scope());
  return g
      .AddNode({.kind = OpKind::kLinear,
                .attributes = LinearAttributes{},
                .inputs = {x, w, bias},
                .outputs = {},
                .name = {},
                .gradient = Gradient},
               {{{g.shape(x)[0], g.shape(w)[0]}, g.compute()}})
      .outputs[0];
}

}  // namespace carole::ops
