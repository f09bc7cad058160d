// A stretch of a stream as a CUDA graph: one call instead of hundreds of launches.
#pragma once

#include <functional>
#include <memory>

#include "src/backend/backend.h"

struct CUstream_st;

namespace carole::cuda {

// Captures what `enqueue` puts into the stream, and into others that events fork from it and join
// to it again; other threads may help. Passes on what `enqueue` throws.
std::unique_ptr<Recording> RecordGraph(CUstream_st* stream, const std::function<void()>& enqueue);

}  // namespace carole::cuda
