#include "src/backend/cuda/runtime/download.h"

#include <utility>

#include "src/backend/cuda/runtime/status.h"

namespace carole::cuda {
namespace {

class StreamDownload : public Download {
 public:
  StreamDownload(cudaStream_t kernels, DeviceMemory host, size_t bytes)
      : kernels_(kernels), host_(std::move(host)), bytes_(bytes) {
    // The waiting thread sleeps instead of spinning: the cores have images to decode.
    Check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming | cudaEventBlockingSync),
          "cudaEventCreate");
  }
  StreamDownload(const StreamDownload&) = delete;
  StreamDownload& operator=(const StreamDownload&) = delete;
  ~StreamDownload() override {
    cudaEventSynchronize(copied_);
    cudaEventDestroy(copied_);
  }

  void Begin(const std::byte* device) override {
    Check(cudaMemcpyAsync(host_.get(), device, bytes_, cudaMemcpyDeviceToHost, kernels_),
          "cudaMemcpyAsync");
    Check(cudaEventRecord(copied_, kernels_), "cudaEventRecord");
  }
  const std::byte* Wait() override {
    Check(cudaEventSynchronize(copied_), "cudaEventSynchronize");
    return host_.get();
  }

 private:
  const cudaStream_t kernels_;
  const DeviceMemory host_;
  const size_t bytes_;
  cudaEvent_t copied_ = nullptr;
};

}  // namespace

std::unique_ptr<Download> MakeDownload(CUstream_st* kernels, DeviceMemory host, size_t bytes) {
  return std::make_unique<StreamDownload>(kernels, std::move(host), bytes);
}

}  // namespace carole::cuda
