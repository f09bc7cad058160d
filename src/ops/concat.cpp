// Concatenation along channels (ops.h): shape inference and gradient rule.
#include "src/backend/ops/concat.h"

#include "src/core/check.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

// The gradient of each input is a slice of dy.
std::vector<ValueId> ConcatRule(const GradientArgs& args) {
  Graph& g = args.graph;
  std::vector<ValueId> dx;
  int64_t begin = 0;
  for (size_t i = 0; i < args.node.inputs.size(); ++i) {
    const Shape shape = g.shape(args.node.inputs[i]);
    dx.push_back(kNone);
    if (args.wanted[i]) {
      dx.back() = g.AddResult({.kind = op::kSlice,
                               .attributes = SliceAttributes{.begin = begin},
                               .inputs = {args.dy[0]}},
                              shape);
    }
    begin += shape[1];
  }
  return dx;
}

}  // namespace

ValueId Concat(Graph& g, const std::vector<ValueId>& inputs) {
  CAROLE_CHECK(!inputs.empty(), "{}: concat of nothing", g.scope());
  if (inputs.size() == 1) return inputs[0];
  Shape out = g.shape(inputs[0]);
  out[1] = 0;
  for (ValueId x : inputs) {
    Shape expected = out;
    expected[1] = g.shape(x)[1];
    CAROLE_CHECK_EQ(g.shape(x), expected, "{}: concat along channels", g.scope());
    out[1] += expected[1];
  }
  return g.AddResult({.kind = op::kConcat, .inputs = inputs, .gradient = ConcatRule}, out);
}

}  // namespace carole::ops
