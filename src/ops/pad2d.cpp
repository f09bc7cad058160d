// Padding with zeros, and cropping (ops.h): shape inference and gradient rule.
#include "src/backend/ops/pad2d.h"

#include "src/core/check.h"
#include "src/ops/image_size.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

// The gradient crops what was padded, and pads what was cropped.
std::vector<ValueId> Pad2dRule(const GradientArgs& args) {
  const Padding& p = args.node.attributes.as<Pad2dAttributes>().padding;
  return {Pad2d(args.graph, args.dy[0], {-p.top, -p.left, -p.bottom, -p.right})};
}

}  // namespace

ValueId Pad2d(Graph& g, ValueId x, const Padding& padding) {
  const Shape& in = g.shape(x);
  CAROLE_CHECK_EQ(in.rank(), 4, "{}: rank of a padded image", g.scope());
  const int64_t p = in[2] + padding.top + padding.bottom, q = in[3] + padding.left + padding.right;
  CheckImageSize(g, in, p, q, 1 - padding.top - padding.bottom, 1 - padding.left - padding.right);
  return g.AddResult({.kind = op::kPad2d,
                      .attributes = Pad2dAttributes{padding},
                      .inputs = {x},
                      .gradient = Pad2dRule},
                     {in[0], in[1], p, q});
}

}  // namespace carole::ops
