// Buffer: owned host memory. Tensors are views of it.
#pragma once

#include <cstddef>
#include <memory>

namespace carole {

// Owns host memory. It starts at a cache line and is filled with zeros. Buffers of 2 MiB and more
// ask the operating system for huge pages. Movable, not copyable.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;  // bytes of a cache line

  Buffer() = default;
  // Throws ConfigError if the memory cannot be allocated. The text says how much was requested.
  explicit Buffer(size_t bytes);

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

// Returns the pages of a part of a Buffer to the operating system. The content becomes undefined.
// Pages come back when they are written again. Does nothing for less than a huge page (2 MiB).
void DiscardPages(std::byte* data, size_t bytes);

// Returns n rounded up to a multiple of Buffer::kAlignment.
constexpr size_t AlignUp(size_t n) {
  return (n + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

}  // namespace carole
