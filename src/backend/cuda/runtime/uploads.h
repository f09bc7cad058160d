// Copies from the host to the device that overlap with kernels. They have a stream of their own,
// and events order it with the stream of the kernels.
#pragma once

#include <cstddef>

#include "src/backend/staged_inputs.h"

struct CUstream_st;
struct CUevent_st;

namespace carole::cuda {

class Uploads : public UploadQueue {
 public:
  // `kernels` is the stream of the kernels. It must outlive this object.
  explicit Uploads(CUstream_st* kernels);
  ~Uploads() override;
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  void Copy(std::byte* device, const std::byte* host, size_t bytes) override;
  void WaitOnHost() override;
  void BeginReading() override;
  void EndReading() override;

 private:
  CUstream_st* const kernels_;
  CUstream_st* stream_ = nullptr;
  CUevent_st* copied_ = nullptr;  // after the last Copy()
  CUevent_st* read_ = nullptr;    // at the last EndReading()
};

}  // namespace carole::cuda
