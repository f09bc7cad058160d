#include "src/backend/cuda/runtime/uploads.h"

#include "src/backend/cuda/runtime/status.h"

namespace carole::cuda {

Uploads::Uploads(CUstream_st* kernels) : kernels_(kernels) {
  Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  // The waiting thread sleeps instead of spinning: the cores have images to decode.
  Check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming | cudaEventBlockingSync),
        "cudaEventCreate");
  Check(cudaEventCreateWithFlags(&read_, cudaEventDisableTiming), "cudaEventCreate");
}

Uploads::~Uploads() {
  cudaStreamSynchronize(stream_);
  cudaEventDestroy(read_);
  cudaEventDestroy(copied_);
  cudaStreamDestroy(stream_);
}

// The copy waits for the event of the last EndReading(). An event that was never recorded delays
// nothing.
void Uploads::Copy(std::byte* device, const std::byte* host, size_t bytes) {
  Check(cudaStreamWaitEvent(stream_, read_, 0), "cudaStreamWaitEvent");
  Check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  Check(cudaEventRecord(copied_, stream_), "cudaEventRecord");
}

void Uploads::WaitOnHost() { Check(cudaEventSynchronize(copied_), "cudaEventSynchronize"); }

void Uploads::BeginReading() {
  Check(cudaStreamWaitEvent(kernels_, copied_, 0), "cudaStreamWaitEvent");
}

void Uploads::EndReading() { Check(cudaEventRecord(read_, kernels_), "cudaEventRecord"); }

}  // namespace carole::cuda
