// Matrix product (ops.h): shape inference and gradient rule.
#include "src/backend/ops/linear.h"

#include "src/core/check.h"
#include "src/ops/gradients.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> Gradient(const GradientArgs& args) {
  const bool relu = args.node.attributes.as<LinearAttributes>().relu;
  return ConvOrLinearGradient(args, relu, LinearAttributes{}, op::kLinearBackwardFilter,
                              op::kLinearBackwardData);
}

}  // namespace

ValueId Linear(Graph& g, ValueId x, ValueId w, ValueId bias) {
  CAROLE_CHECK(g.shape(x).rank() == 2 && g.shape(w).rank() == 2, "{}: linear of {} with {}",
               g.scope(), g.shape(x).ToString(), g.shape(w).ToString());
  CAROLE_CHECK_EQ(g.shape(x)[1], g.shape(w)[1], "{}: columns of the input", g.scope());
  return g.AddResult({.kind = op::kLinear,
                      .attributes = LinearAttributes{},
                      .inputs = {x, w, bias},
                      .gradient = Gradient},
                     {g.shape(x)[0], g.shape(w)[0]});
}

}  // namespace carole::ops
