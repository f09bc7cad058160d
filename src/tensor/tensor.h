// Tensor: a view of memory with shape, dtype and layout. It never owns the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>

#include "src/core/check.h"
#include "src/core/dtype.h"
#include "src/core/shape.h"

namespace carole {

// A layout that only its backend understands, for instance nChw16c of oneDNN. It is immutable and
// shared, because many tensors of a plan have the same layout.
class OpaqueLayout {
 public:
  virtual ~OpaqueLayout() = default;
  // The size of the tensor in bytes, including padding.
  virtual size_t bytes() const = 0;
  virtual bool Equals(const OpaqueLayout& other) const = 0;
  virtual std::string Name() const = 0;
};

// The order of a tensor's elements in memory. A "plain" layout is one of kRowMajor, kNHWC and
// kFilter: all code can read it, by PlainStrides().
class Layout {
 public:
  enum class Kind : uint8_t {
    kAny,       // not chosen yet: a kernel may choose
    kRowMajor,  // the order of the shape; the last dimension is contiguous
    kNHWC,      // activation (N,C,H,W) stored as N,H,W,C
    kFilter,    // TensorFlow's filters: (K,C,R,S) stored as R,S,C,K; matrix (K,C) stored as C,K
    kOpaque     // an OpaqueLayout of the backend
  };

  Layout() = default;
  static Layout Any() { return Layout(); }
  static Layout RowMajor() { return Layout(Kind::kRowMajor); }
  static Layout Nhwc() { return Layout(Kind::kNHWC); }
  static Layout Filter() { return Layout(Kind::kFilter); }
  static Layout Opaque(std::shared_ptr<const OpaqueLayout> opaque);
  // Returns the plain layout of an activation: kNHWC for rank 4, else row-major.
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

// Returns the bytes that a tensor of this shape, dtype and layout needs.
size_t ByteSize(const Shape& shape, DType dtype, const Layout& layout);

// Returns the strides of a plain layout, in elements, in the order of the shape's dimensions. For a
// rank that the layout does not define, they are row-major. Throws InternalError if the layout is
// not plain.
Shape PlainStrides(const Shape& shape, const Layout& layout);

// A view of a tensor in host or device memory. The owner of the memory must outlive it.
struct Tensor {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::kF32;
  Layout layout = Layout::RowMajor();

  size_t bytes() const { return ByteSize(shape, dtype, layout); }
  int64_t size() const { return shape.size(); }

  // Returns the elements as an array of T. Throws InternalError if T has not the size of the dtype.
  // The caller must choose a T of the right kind.
  template <typename T>
  T* as() const {
    CAROLE_CHECK_EQ(sizeof(T), SizeOf(dtype), "tensor of {} read as another type", Name(dtype));
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace carole
