// A fake GPU: functions that the fake libraries of this folder share, and that tests call. Streams
// run their work when they are waited for. To the CUDA runtime the fake driver is too old, so that
// the CUDA backend reports it.
//
// Tests control the libraries by environment variables:
//   FAKE_GPU_COUNT=0             the number of GPUs (1 if not set)
//   FAKE_CUDA_STATUS=719         the status that waiting for the GPU returns
//   FAKE_CUDA_FULL=cuMemAlloc    the allocation function that reports that there is no memory
//   FAKE_NVJPEG_STATUS=6         the status that nvjpegDecode returns instead of decoding
//   FAKE_NVJPEG_INFO_STATUS=2    the same for nvjpegGetImageInfo
//   FAKE_NVJPEG_OLD=1            an old version of nvJPEG, which refuses interpolation
#pragma once

#include <functional>

#include "src/backend/nvjpeg/nvjpeg_abi.h"

extern "C" {
// The number of contexts, streams, events, allocations, handles and states that exist.
int FakeGpuObjects();
// Adds to that number.
void FakeGpuCount(int change);
// Whether this thread has a current context, and so may call CUDA.
bool FakeGpuHasContext();
// The number of images whose header was read, and of images that were decoded.
int FakeNvjpegAsked();
int FakeNvjpegDecoded();
}

namespace carole::fake_gpu {

// Device addresses are host addresses plus this offset, so that they fault on the host.
inline constexpr unsigned long long kOffset = 1ULL << 62;
inline unsigned char* OnHost(unsigned long long device) {
  return reinterpret_cast<unsigned char*>(device - kOffset);
}

// Enqueues work, which runs when the stream is waited for.
void Push(gpu_jpeg::driver::Stream stream, std::function<void()> work);

}  // namespace carole::fake_gpu
