// Kernels that read the clock of a GPU.
//
// Why kernels, and not CUDA events. A captured step would record the same events in each replay.
// Two steps are in flight, so the second one would record them again before the host has read the
// times of the first one. A kernel writes to device memory, from which each step's times are copied
// in the order of the stream.
#pragma once

#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// Enqueues a kernel that ends a lap of the stopwatch, which is in device memory.
void EndLap(CUstream_st* stream, DeviceStopwatch* watch, int part);
// Enqueues a kernel that writes the time in nanoseconds to device memory.
void WriteTime(CUstream_st* stream, uint64_t* to);

}  // namespace carole::cuda
