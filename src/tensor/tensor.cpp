#include "src/tensor/tensor.h"

#include <vector>

namespace carole {

Layout Layout::Opaque(std::shared_ptr<const OpaqueLayout> opaque) {
  Layout layout(Kind::kOpaque);
  layout.opaque_ = std::move(opaque);
  return layout;
}

bool Layout::operator==(const Layout& other) const {
  if (kind_ != other.kind_) return false;
  return kind_ != Kind::kOpaque || opaque_ == other.opaque_ || opaque_->Equals(*other.opaque_);
}

std::string Layout::ToString() const {
  switch (kind_) {
    case Kind::kAny:
      return "any";
    case Kind::kRowMajor:
      return "row-major";
    case Kind::kNHWC:
      return "nhwc";
    case Kind::kFilter:
      return "filter";
    case Kind::kOpaque:
      return opaque_->Name();
  }
  return "?";
}

size_t ByteSize(const Shape& shape, DType dtype, const Layout& layout) {
  if (layout.kind() == Layout::Kind::kOpaque) return layout.opaque()->bytes();
  return static_cast<size_t>(shape.size()) * SizeOf(dtype);
}

Shape PlainStrides(const Shape& shape, const Layout& layout) {
  CAROLE_CHECK(layout.is_plain(), "strides of a layout that is not plain: {}", layout.ToString());
  const int rank = shape.rank();
  std::vector<int> order;  // the dimensions, from the largest stride to the smallest
  if (layout.kind() == Layout::Kind::kNHWC && rank == 4) {
    order = {0, 2, 3, 1};
  } else if (layout.kind() == Layout::Kind::kFilter && rank == 4) {
    order = {2, 3, 1, 0};
  } else if (layout.kind() == Layout::Kind::kFilter && rank == 2) {
    order = {1, 0};
  } else {
    for (int i = 0; i < rank; ++i) order.push_back(i);
  }
  Shape strides = shape;
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[order[i]] = step;
    step *= shape[order[i]];
  }
  return strides;
}

}  // namespace carole
