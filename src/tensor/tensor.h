// Tensor: a view of memory with shape, dtype and layout. It never owns.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>

#include "src/core/check.h"
#include "src/core/dtype.h"
#include "src/core/shape.h"

namespace carole {

// A layout that only its backend understands (for instance oneDNN's nChw16c). Immutable and shared,
// because the same description stands in many tensors of a plan.
class OpaqueLayout {
 public:
  virtual ~OpaqueLayout() = default;
  // Bytes of a tensor in this layout, padding included.
  virtual size_t bytes() const = 0;
  virtual bool Equals(const OpaqueLayout& other) const = 0;
  virtual std::string Name() const = 0;
};

// How the elements of a shape lie in memory.
class Layout {
 public:
  enum class Kind : uint8_t {
    kAny,       // not chosen yet: a kernel may choose
    kRowMajor,  // as the shape lists them, last fastest
    kNHWC,      // activation (N,C,H,W) stored N,H,W,C
    kFilter,    // TensorFlow's filter order: (K,C,R,S) stored R,S,C,K; matrix (K,C) stored C,K
    kOpaque     // the backend's own
  };

  Layout() = default;
  static Layout Any() { return Layout(); }
  static Layout RowMajor() { return Layout(Kind::kRowMajor); }
  static Layout Nhwc() { return Layout(Kind::kNHWC); }
  static Layout Filter() { return Layout(Kind::kFilter); }
  static Layout Opaque(std::shared_ptr<const OpaqueLayout> opaque);
  // The plain layout of an activation: kNHWC for rank 4, row-major otherwise.
  static Layout PlainActivation(const Shape& shape) {
    return shape.rank() == 4 ? Nhwc() : RowMajor();
  }

  Kind kind() const { return kind_; }
  bool is_any() const { return kind_ == Kind::kAny; }
  bool is_plain() const { return kind_ != Kind::kAny && kind_ != Kind::kOpaque; }
  const OpaqueLayout* opaque() const { return opaque_.get(); }

  bool operator==(const Layout& other) const;
  std::string ToString() const;

 private:
  explicit Layout(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kAny;
  std::shared_ptr<const OpaqueLayout> opaque_;
};

inline std::ostream& operator<<(std::ostream& out, const Layout& l) { return out << l.ToString(); }

// Bytes that a tensor of this shape, dtype and layout needs.
size_t ByteSize(const Shape& shape, DType dtype, const Layout& layout);

// Strides, in elements, of a plain layout, in the order of the shape's dimensions.
Shape PlainStrides(const Shape& shape, const Layout& layout);

struct Tensor {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::kF32;
  Layout layout = Layout::RowMajor();

  size_t bytes() const { return ByteSize(shape, dtype, layout); }
  int64_t size() const { return shape.size(); }

  // The elements as T; sizes are checked, the meaning of T is the caller's matter.
  template <typename T>
  T* as() const {
    CAROLE_CHECK_EQ(sizeof(T), SizeOf(dtype), "tensor of {} read as another type", Name(dtype));
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace carole
