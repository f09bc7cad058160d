// The layers of layers.h that have no variables and consist of one operation.
#include <string>

#include "nets/layers/layers.h"
#include "src/core/check.h"
#include "src/ops/ops.h"

namespace carole::nets {

ValueId Lrn(NetBuilder& b, ValueId x, std::string_view name) {
  const auto scope = b.Enter(name);
  return ops::Lrn(b.graph(), x, LrnAttributes{});
}

ValueId Dropout(NetBuilder& b, ValueId x, std::string_view name, double keep) {
  const int64_t layer = b.NextDropoutLayer();
  if (!b.uses_dropout() || keep == 1) return x;
  const auto scope = b.Enter(name);
  return ops::Dropout(b.graph(), x, {.keep = keep, .layer = layer});
}

ValueId Flatten(NetBuilder& b, ValueId x, std::string_view name) {
  const auto scope = b.Enter(name);
  const Shape& in = b.shape(x);
  return ops::Reshape(b.graph(), x, {in[0], in.size() / in[0]});
}

ValueId Squeeze(NetBuilder& b, ValueId x, std::string_view name) {
  const Shape& in = b.shape(x);
  CAROLE_CHECK(in.rank() == 4 && in[2] == 1 && in[3] == 1, "{}: squeeze of {}", b.Path(name),
               in.ToString());
  return Flatten(b, x, name);
}

std::string Numbered(std::string_view name, int64_t number) {
  const std::string first(name);
  return number == 0 ? first : first + "_" + std::to_string(number);
}

ValueId Softmax(NetBuilder& b, ValueId x, std::string_view name) {
  const auto scope = b.Enter(name);
  return ops::Softmax(b.graph(), x);
}

}  // namespace carole::nets
