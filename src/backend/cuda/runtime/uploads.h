// Copies from the host to the device that overlap with kernels. They have a stream of their own,
// and events order it with the stream of the kernels. The contract is that of Backend::Upload(),
// WaitForUploads(), BeginReading() and EndReading() (src/backend/backend.h).
#pragma once

#include <cstddef>

struct CUstream_st;
struct CUevent_st;

namespace carole::cuda {

class Uploads {
 public:
  // `kernels` is the stream of the kernels. It must outlive this object.
  explicit Uploads(CUstream_st* kernels);
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  void Copy(std::byte* device, const std::byte* host, size_t bytes);
  void WaitOnHost() const;
  void BeginReading();
  void EndReading();

 private:
  CUstream_st* const kernels_;
  CUstream_st* stream_ = nullptr;
  CUevent_st* copied_ = nullptr;  // after the last Copy()
  CUevent_st* read_ = nullptr;    // at the last EndReading()
};

}  // namespace carole::cuda
