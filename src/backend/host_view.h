// Access of the host to device memory, for rare operations such as saving a checkpoint.
#pragma once

#include <span>
#include <vector>

#include "src/backend/backend.h"

namespace carole {

// A view of device memory that the host can read and write. It is the memory itself if the host can
// access it, else a copy that the constructor makes.
class HostView {
 public:
  // `backend` and `memory` must outlive this.
  HostView(const Backend& backend, std::byte* memory, size_t bytes)
      : backend_(backend), memory_(memory), data_(memory), bytes_(bytes) {
    if (!backend.has_own_memory()) return;
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

  // Copies the view back to device memory, after changes.
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
