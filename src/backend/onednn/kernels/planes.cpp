#include "src/backend/onednn/kernels/planes.h"

#include "src/core/divide_up.h"

namespace carole::onednn {

Planes::Planes(const Shape& shape, const Layout& layout)
    : images(shape[0]), channels(shape[1]), lanes(shape[1]) {
  if (shape.rank() == 4) pixels = shape[2] * shape[3];
  if (const auto* blocked = dynamic_cast<const MdLayout*>(layout.opaque())) {
    lanes = blocked->md().get_inner_blks()[0];
    blocks = DivideUp(channels, lanes);
  }
}

Layout KnownLayout(const TensorSpec& x) {
  const auto* blocked = dynamic_cast<const MdLayout*>(x.layout.opaque());
  if (blocked != nullptr && ChannelBlockOf(blocked->md()) != 0) return x.layout;
  return Layout::PlainActivation(x.shape);
}

Layout LayoutLike(const Shape& shape, const Layout& like) {
  const auto* blocked = dynamic_cast<const MdLayout*>(like.opaque());
  if (blocked == nullptr) return Layout::PlainActivation(shape);
  const Md& md = blocked->md();
  return ToLayout(InChannelBlocks(shape, md.get_data_type(), ChannelBlockOf(md)), shape);
}

}  // namespace carole::onednn
