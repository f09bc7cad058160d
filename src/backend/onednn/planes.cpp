#include "src/backend/onednn/planes.h"

namespace carole::onednn {
namespace {

// `shape` in blocks of channels, of the same type as `like`.
Md Blocked(const Shape& shape, Tag tag, const MdLayout& like) {
  return Md(Dims(shape), like.md().get_data_type(), tag);
}

}  // namespace

Planes::Planes(const Shape& shape, const Layout& layout)
    : images(shape[0]), channels(shape[1]), lanes(shape[1]) {
  if (shape.rank() == 4) pixels = shape[2] * shape[3];
  if (const auto* blocked = dynamic_cast<const MdLayout*>(layout.opaque())) {
    lanes = blocked->md().get_inner_blks()[0];
    blocks = (channels + lanes - 1) / lanes;
  }
}

Layout KnownLayout(const TensorSpec& x) {
  if (const auto* blocked = dynamic_cast<const MdLayout*>(x.layout.opaque());
      blocked && x.shape.rank() == 4) {
    for (Tag tag : {Tag::nChw16c, Tag::nChw8c}) {
      if (blocked->md() == Blocked(x.shape, tag, *blocked)) return x.layout;
    }
  }
  return Layout::PlainActivation(x.shape);
}

Layout LayoutLike(const Shape& shape, const Layout& like) {
  const auto* blocked = dynamic_cast<const MdLayout*>(like.opaque());
  if (blocked == nullptr) return Layout::PlainActivation(shape);
  const bool sixteen = blocked->md().get_inner_blks()[0] == 16;
  return ToLayout(Blocked(shape, sixteen ? Tag::nChw16c : Tag::nChw8c, *blocked), shape);
}

}  // namespace carole::onednn
