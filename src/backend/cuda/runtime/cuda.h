// What the kernels of the CUDA backend share. Private to this folder.
//
// Layouts are plain: activations NHWC or row-major, filters of convolutions (K,R,S,C) in memory
// (Layout::Nhwc() of their shape), of depthwise ones and matrices Layout::Filter(). All work goes
// to one stream; nothing waits for it but the copies to the host.
#pragma once

#include <atomic>
#include <memory>

#include "src/backend/plain_kernel.h"

namespace carole {
class ChoiceCache;
}
struct CUstream_st;
struct cudnnContext;
struct cublasLtContext;

namespace carole::cuda {

// What of a RunContext the kernels read, in device memory, so that a captured graph sees each
// run's.
struct RunNumbers {
  uint64_t seed = 0;
  int64_t step = 0, first_sample = 0, valid_rows = 0;

  RunNumbers() = default;
  explicit RunNumbers(const RunContext& c)
      : seed(c.seed), step(c.step), first_sample(c.first_sample), valid_rows(c.valid_rows) {}
};

// For Device::id.
inline uint64_t NextDeviceId() {
  static std::atomic<uint64_t> next{0};
  return next++;
}

// A GPU and the handles of the libraries on it; not owned here.
struct Device {
  const uint64_t id = NextDeviceId();   // unlike a handle's address, of no later one in the process
  CUstream_st* stream = nullptr;        // cudaStream_t
  const RunNumbers* numbers = nullptr;  // of the run in progress, in device memory
  cudnnContext* cudnn = nullptr;        // cudnnHandle_t
  cublasLtContext* blas = nullptr;      // cublasLtHandle_t
  int capability = 0;                   // of computing: 90 for 9.0
  bool tf32 = false;                    // products may round their operands to TF32
  ChoiceCache* plans = nullptr;         // of convolutions; null: plans are not timed
  bool takes_optional = false;          // whatever else is chosen by timing (choose_once.h)
};

// Throws ConfigError where a GPU of this compute capability (90 for 9.0) cannot multiply in it.
void RequirePrecision(Precision precision, int capability, std::string_view gpu);

class CudaKernel : public PlainKernel {
 public:
  CudaKernel(const OpSpec& spec, const Device& device) : PlainKernel(spec), device_(device) {}

 protected:
  const Device& device_;
};

using KernelMaker = std::unique_ptr<Kernel>(const OpSpec& spec, const Device& device);
KernelMaker MakeConv2d, MakeConv2dBackwardData, MakeConv2dBackwardFilter;  // cuDNN
KernelMaker MakeImageConv2d, MakeImageConv2dBackwardFilter;                // image_convolution.h
KernelMaker MakeLinear, MakeLinearBackwardData, MakeLinearBackwardFilter;  // cuBLASLt
KernelMaker MakeWideProduct, MakeWideProductBackwardFilter;
KernelMaker MakeDepthwise, MakeDepthwiseBackwardData, MakeDepthwiseBackwardFilter;
KernelMaker MakeBatchNorm, MakeBatchNormBackward;
KernelMaker MakeElementwise;    // activations, add, scale, and their gradients
KernelMaker MakeScaleChannels;  // and its gradient
KernelMaker MakePool2d, MakePool2dBackward;
KernelMaker MakeLrn, MakeLrnBackward;
KernelMaker MakeDropout;  // its own gradient
KernelMaker MakeSoftmax, MakeSoftmaxCrossEntropy;
KernelMaker MakeChannelCopy;  // concat, slice
KernelMaker MakePad2d, MakeNormalize, MakeReorder, MakeCasts;

// nullptr where there is none for the operation in these types.
KernelMaker* FindMaker(const OpSpec& spec, const Device& device);

// So many channels tensor cores take always; images of fewer may get some of zeros (conv2d.cpp).
inline constexpr int64_t kNeverPaddedChannels = 8;

// Of all images together.
inline int64_t PixelsOf(const Shape& x) { return x.size() / x[1]; }

// In which the activations of an operation are stored, and the filters that multiply them.
DType ElementType(const OpSpec& spec);
// Logits: a convolution of one pixel by one tap, in 16 bits, whose result is wanted in fp32.
bool IsWideProduct(const OpSpec& spec);
// The gradient, in fp32, of filters in 16 bits that span the whole image (as VGG's fc6), where
// operands lie as products want them: it is written once instead of rounded and cast.
bool IsWideProductBackwardFilter(const OpSpec& spec);
// Whether there are kernels for these types: activations and filters in one of fp32, bf16 and fp16;
// all else in fp32 or, what counts, int32, bits in bytes; a filter's gradient in either. Reorder
// and Casts also cast between fp32 and the narrow ones, Normalize from bytes to any.
bool HasTypes(const OpSpec& spec);

}  // namespace carole::cuda
