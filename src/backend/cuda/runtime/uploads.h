// Copies to a device beside its kernels: in a stream of their own, which events join to that of the
// kernels. What Backend::Upload() and its neighbors promise (src/backend/backend.h).
#pragma once

#include <cstddef>

struct CUstream_st;
struct CUevent_st;

namespace carole::cuda {

class Uploads {
 public:
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
  CUevent_st* copied_ = nullptr;
  CUevent_st* read_ = nullptr;
};

}  // namespace carole::cuda
