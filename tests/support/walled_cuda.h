// A walled device (walled_backend.h) that runs the kernels of the CUDA backend. Each of them enters
// the stream separately, so that an all-reduce may come between two of them.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <utility>

#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/walled_backend.h"

namespace carole::testing {

// The stream of a walled device as a CUDA stream.
class WalledCudaStream : public CUstream_st {
 public:
  explicit WalledCudaStream(SharedStream stream) : stream_(std::move(stream)) {}

  // Work that is pushed while the stream runs other work is run at once.
  void Push(std::function<void()> work) override {
    stream_->is_running() ? work() : stream_->Add(std::move(work));
  }
  void Wait() override { stream_->Drain(); }

 private:
  const SharedStream stream_;
};

class WalledCuda : public WalledBackend {
 public:
  explicit WalledCuda(CopyTime copy_time = CopyTime::kLate)
      : WalledBackend(MakeEmulatedCudaBackend(1), copy_time),
        cuda_stream_(WalledBackend::stream()),
        kernels_(MakeEmulatedCudaBackend({.stream = &cuda_stream_})) {}

  void SetPrecision(Precision precision) override {
    WalledBackend::SetPrecision(precision);
    kernels_->SetPrecision(precision);
  }
  void BeginRun(const RunContext& context) const override {
    WalledBackend::BeginRun(context);
    kernels_->BeginRun(context);
  }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    return kernels_->MakeKernel(spec);
  }

 private:
  WalledCudaStream cuda_stream_;
  const std::unique_ptr<Backend> kernels_;
};

}  // namespace carole::testing
