// Captures the work of a stream as a CUDA graph. A replay is one call instead of hundreds of
// launches.
#pragma once

#include <functional>
#include <memory>

#include "src/backend/backend.h"

struct CUstream_st;

namespace carole::cuda {

// Captures the work that `enqueue` puts into `stream`, and into other streams that events fork from
// it and join to it again. Other threads may enqueue part of that work. `stream` must outlive the
// result. Rethrows what `enqueue` throws. Throws DeviceError if CUDA refuses the capture.
std::unique_ptr<CapturedWork> CaptureGraph(CUstream_st* stream,
                                           const std::function<void()>& enqueue);

}  // namespace carole::cuda
