// FullyConnected() of layers.h.
#include "nets/layers/layers.h"
#include "src/ops/ops.h"

namespace carole::nets {

ValueId FullyConnected(NetBuilder& b, ValueId x, std::string_view name, int64_t outputs,
                       const LayerOptions& options) {
  const auto scope = b.Enter(name);
  const int64_t inputs = b.shape(x)[1];
  const ValueId w = b.AddVariable({.name = options.weights_name,
                                   .tf_shape = {inputs, outputs},
                                   .shape = {outputs, inputs},
                                   .initializer = options.weights,
                                   .l2_regularized = options.l2_weights});
  const ValueId y = ops::Linear(b.graph(), x, w, AddBiases(b, outputs, options));
  return NormalizeAndActivate(b, y, options);
}

}  // namespace carole::nets
