#include "src/backend/cuda/runtime/clock.h"
#include "src/backend/cuda/runtime/launch.h"

namespace carole::cuda {
namespace {

// Returns nanoseconds. All multiprocessors of a GPU have the same clock. It may advance by 1 us at
// a time, which is short for a step or a reduction. Source: PTX ISA, "%globaltimer".
__device__ uint64_t Nanoseconds() {
#ifndef __CUDACC__
  return EmulatedNanoseconds();
#else
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
#endif
}

__global__ void EndLapKernel(DeviceStopwatch* watch, int part) {
  if (threadIdx.x == 0) watch->EndLap(part, Nanoseconds());
}

__global__ void WriteTimeKernel(uint64_t* to) {
  if (threadIdx.x == 0) *to = Nanoseconds();
}

}  // namespace

void EndLap(CUstream_st* stream, DeviceStopwatch* watch, int part) {
  Launch(stream, dim3(1), EndLapKernel, watch, part);
}

void WriteTime(CUstream_st* stream, uint64_t* to) { Launch(stream, dim3(1), WriteTimeKernel, to); }

}  // namespace carole::cuda
