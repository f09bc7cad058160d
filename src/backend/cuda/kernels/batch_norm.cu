// Forward pass of batch normalization; src/backend/ops/batch_norm.h has the formulas.
//
// Why it is written with care. Batch normalization does little arithmetic, so it takes as long as
// its reads and writes of device memory. In ResNet-50 (bf16, batch 256, H200) a model of bytes at
// 4.0 TB/s gives, in a step of at least 22.4 ms: statistics 1.25 ms, forward apply 2.7 ms, backward
// sums 3.6 ms, backward apply 3.3 ms. So each pass must reach the speed of memory, and no pass may
// read more than it needs. The residual addition and ReLU are part of the last pass for this
// reason.
//
// Data layout. x, residual and y are matrices (pixels, channels), with pixels = N*H*W and NHWC in
// memory. A thread works on a pack of N neighboring channels (16 bytes: 8 channels in bf16) of many
// pixels. Statistics and parameters are fp32, one for each channel.
//
// The phases of training:
//   1. Statistics. ChannelSums() sums d and d^2 over the valid pixels of each channel, with
//      d = x - pivot. The pivot is x of the channel's first pixel: without it, the variance would
//      be a difference of two large numbers if |mean| is large.
//   2. Moments. In the last kernel of ChannelSums(), for each channel: mean, rstd, and the update
//      of the moving statistics (batch_statistics.h).
//   3. Apply. ForMatrix() computes y of all pixels, also of those that are not valid. It goes from
//      the last pixel to the first, since phase 1 read the last ones last and the cache still holds
//      some of them.
// Inference has phase 3 only, with the moving statistics.
//
// Statistics over all ranks (sync_batch_norm). Pivots differ between ranks, so each rank converts
// its sums to pivot 0: the sums of x and x^2, in doubles (PackMoments). An all-reduce adds them in
// stream order, and a small kernel computes the moments (WriteGlobalMoments).
//
// A worked example. One channel, 8 pixels: 100 101 102 103 100 101 102 103.
//   pivot = 100; d = 0 1 2 3 0 1 2 3; sum d = 12; sum d^2 = 28
//   mean = 100 + 12/8 = 101.5; variance = 28/8 - (12/8)^2 = 1.25; unbiased 1.25 * 8/7 = 1.43
//   For all ranks: sum x = 12 + 8 * 100 = 812; sum x^2 = 28 + 100 * (2 * 12 + 8 * 100) = 82,428.
//   With values around 10,000, x^2 is about 1e8. fp32 has 24 bits, steps of 8 at this size: without
//   the pivot, a variance of 1.25 would be lost. Doubles keep it.
//
// A worked example of the grid. ResNet-50's first batch norm, batch 256, bf16: 3,211,264 pixels of
// 64 channels, which are 8 packs. A block of 256 threads covers 8 packs of 32 pixels at a time, and
// a chunk of 3,136 pixels. 1,024 blocks write 2 * 64 partial sums each: 1 MiB of doubles.
//
// Why simpler forms were not enough:
//   * One read at a time keeps memory idle, so each thread issues 4 reads of 16 bytes before it
//     uses the first (kReadsInFlight).
//   * Registers limit how many reads can be in flight. An operand that is absent must take none: so
//     kResidual is a template parameter. Totals of sums lie in shared memory (channel_sums.h).
//   * A float that sums many pixels loses digits as it grows. So a sum takes 32 pixels only. Then
//     it is added to a total of its thread, and totals of threads are added in doubles.
//   * Backward needs the mask of the ReLU. With a residual, it cannot be computed from x alone. So
//     the last pass also writes a bit for each element (ReluBitmask). For bf16, backward reads an
//     eighth of the bytes that y would take.
#include <type_traits>

#include "src/backend/cuda/kernels/batch_norm.h"
#include "src/backend/cuda/kernels/batch_statistics.h"

namespace carole::cuda {
namespace {

constexpr auto kForwardIn = kPosition<BatchNormInputs>;
constexpr auto kForwardOut = kPosition<BatchNormOutputs>;

// Computes y for ForMatrix(). kResidual is whether there is a residual: without one it takes no
// registers.
template <typename T, int N, bool kResidual>
struct ApplyForward {
  static constexpr int kReadsInFlight = 4;
  NormParameters parameters;
  ValidPixels pixels;
  int64_t channels;
  const T *x, *residual;
  T* y;
  ReluBitmask<N> relu_bitmask;
  Relu relu;

  struct Nothing {};
  struct Packs {
    Pack<T, N> x;
    std::conditional_t<kResidual, Pack<T, N>, Nothing> residual;
  };
  __device__ NormColumns<N> Column(int64_t channel) const { return parameters.At<N>(channel); }
  __device__ int64_t ElementIndex(const NormColumns<N>& column, int64_t i) const {
    return pixels.FromTheEnd(i) * channels + column.channel;
  }
  __device__ Packs Read(const NormColumns<N>& column, int64_t i) const {
    const int64_t at = ElementIndex(column, i);
    Packs packs{ReadPack<N>(x + at), {}};
    if constexpr (kResidual) packs.residual = ReadPack<N>(residual + at);
    return packs;
  }
  __device__ void Write(const NormColumns<N>& column, int64_t i, const Packs& packs) const {
    Floats<N> values = ToFloats(packs.x), added{};
    if constexpr (kResidual) added = ToFloats(packs.residual);
    for (int n = 0; n < N; ++n) {
      values[n] = relu(column.Normalize(values[n], n) + added[n]);
    }
    Store<N>(y + ElementIndex(column, i), values);
    if constexpr (kResidual) {
      if (relu_bitmask.bytes != nullptr) relu_bitmask.Put(ElementIndex(column, i), values);
    }
  }
};

template <typename T, int N>
class BatchNorm : public CudaKernel {
 public:
  BatchNorm(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        a_(spec.attributes.as<BatchNormAttributes>()),
        channels_(in_shape(kForwardIn.x)[1]),
        statistics_(in_shape(kForwardIn.x), device) {
    workspace_bytes_ = statistics_.workspace_bytes() + 2 * sizeof(float) * channels_;
  }

  void Run(const RunContext& context) override {
    const WriteMoments write{a_.epsilon,
                             a_.training ? 1 - a_.decay : 0,
                             in<float>(kForwardIn.moving_mean),
                             in<float>(kForwardIn.moving_variance),
                             mean(),
                             rstd()};
    if (a_.training) {
      statistics_.Run(context, in<T>(kForwardIn.x), memory_.workspace, write);
    } else {
      UseMovingMoments(write);
    }
    in<T>(kForwardIn.residual) != nullptr ? Apply<true>() : Apply<false>();
  }

  // Public: nvcc requires this of a function that contains a device lambda.
  void UseMovingMoments(const WriteMoments& write) const {
    ForEach(device_.stream, channels_, [=] __device__(int64_t c) {
      write(c, {write.moving_mean[c], write.moving_variance[c], 0});
    });
  }

 private:
  template <bool kResidual>
  void Apply() const {
    ForMatrix<N>(device_.stream, statistics_.pixels().all(), channels_,
                 ApplyForward<T, N, kResidual>{
                     {mean(), rstd(), in<float>(kForwardIn.gamma), in<float>(kForwardIn.beta)},
                     statistics_.pixels(),
                     channels_,
                     in<T>(kForwardIn.x),
                     in<T>(kForwardIn.residual),
                     out<T>(kForwardOut.y),
                     {out<uint8_t>(kForwardOut.relu_bitmask)},
                     Relu(a_)});
  }
  // The outputs mean and rstd, or memory in the workspace if the operation does not have them.
  float* mean() const {
    float* wanted = out<float>(kForwardOut.mean);
    return wanted != nullptr ? wanted : workspace_moments();
  }
  float* rstd() const {
    float* wanted = out<float>(kForwardOut.rstd);
    return wanted != nullptr ? wanted : workspace_moments() + channels_;
  }
  float* workspace_moments() const {
    return reinterpret_cast<float*>(memory_.workspace + statistics_.workspace_bytes());
  }

  const BatchNormAttributes a_;
  const int64_t channels_;
  const BatchStatistics<T, N> statistics_;
};

std::unique_ptr<Kernel> MakeBatchNorm(const OpSpec& spec, const Device& device) {
  return MakePacked<BatchNorm>(spec, device, spec.inputs[kForwardIn.x].shape[1]);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kBatchNorm, .make = MakeBatchNorm},
};

}  // namespace

KernelRows BatchNormKernels() { return kRows; }

}  // namespace carole::cuda
