// A GPU that is none: what the fake libraries of this folder share, and what tests ask them.
//
// To CUDA's runtime it is a driver that is too old.
//
//   FAKE_GPU_COUNT=0             there is no GPU
//   FAKE_CUDA_STATUS=719         what waiting for the GPU returns
//   FAKE_CUDA_FULL=cuMemAlloc    the function that finds no memory
//   FAKE_NVJPEG_STATUS=6         what nvjpegDecode returns instead of decoding
//   FAKE_NVJPEG_INFO_STATUS=2    the same for nvjpegGetImageInfo
//   FAKE_NVJPEG_OLD=1            a version without interpolation, which refuses it
#pragma once

#include <functional>

#include "src/backend/nvjpeg/nvjpeg_abi.h"

extern "C" {
// Contexts, streams, events, allocations, handles and states that are there.
int FakeGpuObjects();
void FakeGpuCount(int change);
// Whether this thread may call CUDA.
bool FakeGpuHasContext();
// Pictures whose header was asked for, and those that were decoded.
int FakeNvjpegAsked();
int FakeNvjpegDecoded();
}

namespace carole::fake_gpu {

// Addresses of the GPU fault on the host.
inline constexpr unsigned long long kOffset = 1ULL << 62;
inline unsigned char* OnHost(unsigned long long device) {
  return reinterpret_cast<unsigned char*>(device - kOffset);
}

// Runs when the stream is waited for.
void Push(gpu_jpeg::driver::Stream stream, std::function<void()> work);

}  // namespace carole::fake_gpu
