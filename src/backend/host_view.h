// Kernels' memory where the host can touch it: for what is done seldom.
#pragma once

#include <span>
#include <vector>

#include "src/backend/backend.h"

namespace carole {

// The memory itself where the backend is on_host(), else a copy made now.
class HostView {
 public:
  // Backend and memory outlive this.
  HostView(const Backend& backend, std::byte* memory, size_t bytes)
      : backend_(backend), memory_(memory), data_(memory), bytes_(bytes) {
    if (backend.on_host()) return;
    copy_.resize(bytes);
    backend.CopyToHost(copy_.data(), memory, bytes);
    data_ = copy_.data();
  }

  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

  // Puts back what was changed.
  void Store() const {
    if (data_ != memory_) backend_.CopyFromHost(memory_, data_, bytes_);
  }

 private:
  const Backend& backend_;
  std::byte* const memory_;
  std::byte* data_;
  const size_t bytes_;
  std::vector<std::byte> copy_;
};

}  // namespace carole
