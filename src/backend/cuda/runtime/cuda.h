// Types and functions that all kernels of the CUDA backend share: the device, the base class of
// kernels, and the rows of the table of kernels. Private to src/backend/cuda.
//
// Layouts are plain:
//   activations                NHWC, or row-major for other ranks
//   filters of convolutions    (K,R,S,C) in memory, which is Layout::Nhwc() of their shape
//   filters of depthwise convolutions and matrices    Layout::Filter()
// All work goes to one stream. The host waits for the stream only when it copies results to itself.
#pragma once

#include <atomic>
#include <memory>

#include "src/backend/kernel_table.h"
#include "src/backend/plain_kernel.h"

namespace carole {
class TuningCache;
}
struct CUstream_st;
struct cudnnContext;
struct cublasLtContext;

namespace carole::cuda {

// The fields of a RunContext that kernels read. They lie in device memory, so that each replay of a
// captured graph sees the values of its own run.
struct DeviceRunContext {
  uint64_t seed = 0;
  int64_t step = 0, first_sample = 0, valid_rows = 0;

  DeviceRunContext() = default;
  explicit DeviceRunContext(const RunContext& c)
      : seed(c.seed), step(c.step), first_sample(c.first_sample), valid_rows(c.valid_rows) {}
};

// Returns a number that no other device of this process has.
inline uint64_t NextDeviceId() {
  static std::atomic<uint64_t> next{0};
  return next++;
}

// A GPU and the library handles for it. All pointers are owned by CudaBackend (backend.cpp).
struct Device {
  // A key for maps. Unlike the address of a handle, it is never used again in this process.
  const uint64_t id = NextDeviceId();
  CUstream_st* stream = nullptr;                  // cudaStream_t
  const DeviceRunContext* run_context = nullptr;  // of the current run, in device memory
  cudnnContext* cudnn = nullptr;                  // cudnnHandle_t
  cublasLtContext* blas = nullptr;                // cublasLtHandle_t
  int capability = 0;                             // compute capability, 90 for 9.0
  bool tf32 = false;                              // fp32 products may round their operands to TF32
  TuningCache* plan_cache = nullptr;    // fastest plans of convolutions; null: plans are not timed
  bool force_optional_kernels = false;  // for tests: ChooseOnce() always answers yes
};

// Throws ConfigError if a GPU of this compute capability (90 for 9.0) cannot multiply in this
// precision. `gpu` is the GPU's name, for the message.
void RequirePrecision(Precision precision, int capability, std::string_view gpu);

// Base class of all kernels here. `device` must outlive the kernel.
class CudaKernel : public PlainKernel {
 public:
  CudaKernel(const OpSpec& spec, const Device& device) : PlainKernel(spec), device_(device) {}

 protected:
  const Device& device_;
};

// The device must outlive the kernels.
using KernelRow = KernelRowFor<const Device&>;
using KernelRows = KernelRowsFor<const Device&>;
std::span<KernelRows (*const)()> KernelFiles();

// A function for KernelRow::make, for kernels that work on one element type or on any.
template <typename K>
std::unique_ptr<Kernel> Make(const OpSpec& spec, const Device& device) {
  return std::make_unique<K>(spec, device);
}

// Returns the row for an operation, or nullptr if no kernel supports it.
const KernelRow* FindKernel(const OpSpec& spec, const Device& device);

// Tensor cores always accept this many channels. Images with fewer channels may be padded with
// channels of zeros (convolution/conv2d.cpp).
inline constexpr int64_t kNeverPaddedChannels = 8;

// Returns the number of pixels of all images together, N*H*W.
inline int64_t PixelsOf(const Shape& x) { return x.size() / x[1]; }

// Returns the type in which the operation's activations and the filters that multiply them are
// stored.
DType ElementType(const OpSpec& spec);
// Whether the operation is a 1x1 convolution over a single pixel, in 16 bits, with a result in
// fp32. Nets that end with a convolution compute their logits so.
bool IsMatmulToFp32(const OpSpec& spec);
// Whether the operation is the gradient, in fp32, of 16-bit filters that span the whole image (such
// as VGG's fc6), and the operands have the layout that a matrix product needs. The gradient is then
// written once in fp32, instead of being rounded to 16 bits and cast.
bool IsMatmulBackwardFilterToFp32(const OpSpec& spec);
// Whether there are kernels for the types of this operation:
//   activations and filters    all in fp32, all in bf16 or all in fp16
//   counts and labels          int32
//   bit masks                  bytes
//   gradients of filters       fp32 or the type of the activations
//   everything else            fp32
bool SupportsTypes(const OpSpec& spec, const Device& device);
// Whether one of the types is fp32 and the other one a 16-bit type.
bool IsCast(DType from, DType to);

}  // namespace carole::cuda
