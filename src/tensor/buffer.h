// Owns memory that tensors view.
#pragma once

#include <cstddef>
#include <memory>

namespace carole {

// Host memory on a cache-line boundary, zeroed. Large buffers ask for huge pages. Movable; views
// never own.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // Throws ConfigError when the machine has not that much memory (the text says how much was asked
  // for).
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

// Gives the pages of large memory of a Buffer back to the system until they are written again;
// until then they read as anything.
void DiscardPages(std::byte* data, size_t bytes);

// n rounded up to a multiple of Buffer::kAlignment.
constexpr size_t AlignUp(size_t n) {
  return (n + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

}  // namespace carole
