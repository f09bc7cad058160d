// Copies from the device to the host that do not block the host. The contract is that of
// Backend::MakeDownload() (src/backend/backend.h).
#pragma once

#include <cstddef>
#include <memory>

#include "src/backend/backend.h"

struct CUstream_st;

namespace carole::cuda {

// `host` is pinned memory of `bytes` bytes. The copies run in the stream `kernels`, which must
// outlive the result.
std::unique_ptr<Download> MakeDownload(CUstream_st* kernels, DeviceMemory host, size_t bytes);

}  // namespace carole::cuda
