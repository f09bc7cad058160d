// The CUDA backend: its device, memory and copies. The program loads it at run time; see
// CudaOptions in src/backend/backend.h.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include "src/backend/cuda/kernels/arena_math.h"
#include "src/backend/cuda/runtime/clock.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/cuda/runtime/device_memory.h"
#include "src/backend/cuda/runtime/download.h"
#include "src/backend/cuda/runtime/graph_capture.h"
#include "src/backend/cuda/runtime/status.h"
#include "src/backend/cuda/runtime/uploads.h"
#include "src/backend/staged_inputs.h"
#include "src/core/check.h"
#include "src/core/files/tuning_cache.h"

namespace carole {
namespace cuda {
namespace {

int DeviceCount() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice) return 0;
  Check(status, "cudaGetDeviceCount");
  return count;
}

void CheckDevice(int device) {
  const int count = DeviceCount();
  if (device < count) return;
  throw DeviceError(fmt::format(
      "[cuda] GPU {}: does not exist: got {} GPUs on this host, want one for each rank; start "
      "fewer ranks on this host, or check CUDA_VISIBLE_DEVICES",
      device, count));
}

// Memory that the libraries and the driver allocate while a job runs: kernels that are loaded at
// their first launch, NCCL's buffers for each peer, and captured graphs.
constexpr size_t kReservedBytes = size_t{512} << 20;

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options) {
    CheckDevice(options.device);
    Check(cudaSetDevice(options.device), "cudaSetDevice");
    cudaDeviceProp properties{};
    Check(cudaGetDeviceProperties(&properties, options.device), "cudaGetDeviceProperties");
    gpu_ = properties.name;
    device_.capability = properties.major * 10 + properties.minor;
    Check(cudaStreamCreateWithFlags(&device_.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    if (cudnnCreate(&device_.cudnn) != CUDNN_STATUS_SUCCESS ||
        cudnnSetStream(device_.cudnn, device_.stream) != CUDNN_STATUS_SUCCESS) {
      throw DeviceError(
          fmt::format("[cudnn] version {}: cannot be initialized on GPU {}; this GPU may need a "
                      "newer cuDNN 9",
                      cudnnGetVersion(), options.device));
    }
    if (cublasLtCreate(&device_.blas) != CUBLAS_STATUS_SUCCESS)
      throw DeviceError(
          fmt::format("[cublas] cuBLASLt: cannot be initialized on GPU {}", options.device));
    uploads_ = std::make_unique<Uploads>(device_.stream);
    device_.force_optional_kernels = options.force_optional_kernels;
    if (options.autotune) {
      plan_cache_ = std::make_unique<TuningCache>(
          TuningCache::DefaultPath("plans"), fmt::format("{}, cuDNN {}", gpu_, cudnnGetVersion()));
      device_.plan_cache = plan_cache_.get();
    }
    run_context_ = AllocateDevice(sizeof(DeviceRunContext), device_.stream);
    device_.run_context = reinterpret_cast<const DeviceRunContext*>(run_context_.get());
  }
  ~CudaBackend() override {
    uploads_.reset();
    cublasLtDestroy(device_.blas);
    cudnnDestroy(device_.cudnn);
    cudaStreamDestroy(device_.stream);
  }

  std::string_view name() const override { return "cuda"; }
  void SetPrecision(Precision precision) override {
    RequirePrecision(precision, device_.capability, gpu_);
    device_.tf32 = precision == Precision::kTf32;
    activation_dtype_ = ActivationType(precision);
  }
  int threads() const override { return 1; }
  // From the data sheets of GPUs from V100 to H200, and the share of these values that kernels
  // reach.
  double FlopsPerByte() const override {
    if (activation_dtype_ != DType::kF32) return 150;
    return device_.tf32 ? 70 : 15;
  }
  bool has_own_memory() const override { return true; }
  bool is_asynchronous() const override { return true; }

  bool Supports(const OpSpec& spec) const override { return FindKernel(spec, device_) != nullptr; }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    const KernelRow* const row = FindKernel(spec, device_);
    CAROLE_CHECK(row != nullptr, "cuda does not support {}", Name(spec.kind));
    return row->make(spec, device_);
  }

  DeviceMemory Allocate(size_t bytes) const override {
    return AllocateDevice(bytes, device_.stream);
  }
  DeviceMemory AllocateShared(size_t bytes) const override { return AllocateManaged(bytes); }

  void CopyToHost(std::byte* host, const std::byte* device, size_t bytes) const override {
    Check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, device_.stream),
          "cudaMemcpyAsync");
    Synchronize();
  }
  void CopyFromHost(std::byte* device, const std::byte* host, size_t bytes) const override {
    Check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, device_.stream),
          "cudaMemcpyAsync");
    Synchronize();
  }
  std::unique_ptr<Download> MakeDownload(size_t bytes) const override {
    return cuda::MakeDownload(device_.stream, AllocatePinned(bytes), bytes);
  }

  std::unique_ptr<InputBuffers> MakeInputBuffers(
      const std::vector<std::span<std::byte>>& inputs) const override {
    return MakeStagedInputs(*this, *uploads_, AllocatePinned, inputs);
  }

  bool CanCapture() const override { return true; }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& enqueue) const override {
    return CaptureGraph(device_.stream, enqueue);
  }

  std::optional<size_t> FreeBytes() const override {
    size_t free = 0, all = 0;
    Check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    return free > kReservedBytes ? free - kReservedBytes : 0;
  }
  std::optional<MemoryUse> memory_use() const override {
    size_t free = 0, all = 0;
    Check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    return MemoryUse{.used_bytes = all - free, .total_bytes = all};
  }
  const ArenaMath& arena_math() const override { return *arena_math_; }
  std::optional<GpuStream> gpu_stream() const override {
    GpuStream gpu{.stream = device_.stream};
    Check(cudaGetDevice(&gpu.device), "cudaGetDevice");
    return gpu;
  }

  void BeginRun(const RunContext& context) const override {
    WriteRunContext(device_, DeviceRunContext(context));
  }
  void EndLap(DeviceStopwatch* watch, int part) const override {
    cuda::EndLap(device_.stream, watch, part);
  }
  void WriteTime(void* stream, uint64_t* to) const override {
    cuda::WriteTime(static_cast<cudaStream_t>(stream), to);
  }
  void Synchronize() const override {
    Check(cudaStreamSynchronize(device_.stream), "cudaStreamSynchronize");
  }

 private:
  Device device_;
  std::string gpu_;
  DeviceMemory run_context_;
  std::unique_ptr<Uploads> uploads_;
  std::unique_ptr<TuningCache> plan_cache_;
  const std::unique_ptr<ArenaMath> arena_math_ = MakeArenaMath(device_);
};

}  // namespace
}  // namespace cuda

// The symbols that src/backend/cuda_loader.cpp looks up.
extern "C" Backend* carole_make_cuda_backend(const CudaOptions& options) {
  return new cuda::CudaBackend(options);
}

extern "C" int carole_count_gpus() { return cuda::DeviceCount(); }

extern "C" void carole_gpu_bus_id(int device, std::string& bus_id) {
  char text[64] = {};
  cuda::Check(cudaDeviceGetPCIBusId(text, sizeof text, device), "cudaDeviceGetPCIBusId");
  bus_id = text;
}

}  // namespace carole
