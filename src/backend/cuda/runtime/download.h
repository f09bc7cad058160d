// Copies to the host behind kernels. What Backend::MakeDownload() promises (src/backend/backend.h).
#pragma once

#include <cstddef>
#include <memory>

#include "src/backend/backend.h"

struct CUstream_st;

namespace carole::cuda {

// `host`: so many bytes, pinned. The stream outlives it.
std::unique_ptr<Download> MakeDownload(CUstream_st* kernels, DeviceMemory host, size_t bytes);

}  // namespace carole::cuda
