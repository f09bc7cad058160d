// Types that the forward and backward kernels of batch normalization share. Private to
// src/backend/cuda. src/backend/ops/batch_norm.h has the formulas; batch_norm.cu explains the
// passes.
#pragma once

#include <type_traits>

#include "src/backend/cuda/kernels/channel_sums.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/cuda/runtime/valid_rows.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/relu.h"
#include "src/tensor/buffer.h"

namespace carole::cuda {

// The pixels of a batch: rows of the matrix (pixels, channels). The pixels of the first images are
// valid, and only they count in the statistics. The number of valid images is known only on the
// device.
struct ValidPixels {
  const DeviceRunContext* run_context;
  int64_t images, pixels_per_image;

  ValidPixels(const Shape& x, const DeviceRunContext* run_context)
      : run_context(run_context), images(x[0]), pixels_per_image(x.rank() == 4 ? x[2] * x[3] : 1) {}
  // The number of all pixels, valid or not.
  __host__ __device__ int64_t all() const { return images * pixels_per_image; }
  __device__ int64_t NumValid() const { return ValidRows(*run_context, images) * pixels_per_image; }
  // Returns the i-th pixel in reverse order.
  __device__ int64_t FromTheEnd(int64_t i) const { return all() - 1 - i; }
};

// The ReLU after the normalization, if there is one.
struct Relu {
  bool present;
  float top;

  explicit Relu(const BatchNormAttributes& a)
      : present(a.relu), top(static_cast<float>(ReluUpperBound(a.ceiling))) {}
  __device__ float operator()(float value) const { return present ? Clamp(value, 0, top) : value; }
  // Whether the gradient passes where the value is y. y may be the input or the output of the ReLU.
  __device__ bool Passes(float y) const { return y > 0 && y < top; }
};

// A mask with one bit for each element of y, set if the element is above 0; see BatchNormAttributes
// for its layout. The bits of a pack of N elements are read and written at once.
template <int N>
struct ReluBitmask {
  static constexpr int kBits = BatchNormAttributes::kReluBitmaskBits;
  using Bits = std::conditional_t<(N > kBits), uint16_t, uint8_t>;
  uint8_t* bytes = nullptr;

  // The bit of element i of a pack. Each byte holds the bits of kBits elements.
  __device__ static Bits Mask(int i) {
    return static_cast<Bits>(1U << (i / kBits * 8 + i % kBits));
  }
  __device__ Bits& At(int64_t element) const {
    return *reinterpret_cast<Bits*>(bytes + element / kBits);
  }
  __device__ void Put(int64_t element, const Floats<N>& values) const {
    unsigned bits = 0;
    for (int i = 0; i < N; ++i) bits |= values[i] > 0 ? Mask(i) : 0U;
    At(element) = static_cast<Bits>(bits);
  }
};

// Two sums over the pixels of one channel, and the number of these pixels.
struct TwoSums {
  double first, second, count;
};

// The sums of all channels as ranks all-reduce them: 2 * channels + 1 doubles in device memory. The
// first sums of all channels, then the second sums, then the count.
struct AllReduceBuffer {
  double* values = nullptr;
  int64_t channels = 0;

  static size_t Bytes(int64_t channels) { return sizeof(double) * (2 * channels + 1); }

  __device__ void Put(int64_t c, const TwoSums& sums) const {
    values[c] = sums.first;
    values[channels + c] = sums.second;
    if (c == 0) values[2 * channels] = sums.count;
  }
  // Replaces the values by their sums over all ranks, in the order of the stream.
  void SumOverRanks(const RunContext& context) const {
    context.sum_over_ranks({values, static_cast<size_t>(2 * channels + 1)});
  }
  __device__ TwoSums At(int64_t c) const {
    return {values[c], values[channels + c], values[2 * channels]};
  }
};

// The functors that BackwardSums calls for each channel. Write has
//   TwoSums WriteLocal(channel, sums)   writes dgamma and dbeta of this rank, and returns its sums
//   void WriteGlobal(channel, sums)     writes shift and slope from the sums of all ranks
template <typename Write>
struct FinishLocal {
  Write write;
  __device__ void operator()(int64_t c, const double* sums) const {
    write.WriteGlobal(c, write.WriteLocal(c, sums));
  }
};
template <typename Write>
struct PackForAllReduce {
  Write write;
  AllReduceBuffer all_reduce_buffer;
  __device__ void operator()(int64_t c, const double* sums) const {
    all_reduce_buffer.Put(c, write.WriteLocal(c, sums));
  }
};
template <typename Write>
struct UseGlobalSums {
  Write write;
  AllReduceBuffer all_reduce_buffer;
  __device__ void operator()(int64_t c) const { write.WriteGlobal(c, all_reduce_buffer.At(c)); }
};

// The sums of a backward pass over the pixels of this rank or of all ranks, and two factors for
// each channel that follow from them: shift and slope. All are in the workspace of the kernel.
template <int N>
class BackwardSums {
 public:
  BackwardSums(int64_t pixels, int64_t channels)
      : channels_(channels),
        sums_bytes_(AlignUp(PartialSumsBytes<2, N>(pixels, channels))),
        all_reduce_buffer_bytes_(AlignUp(AllReduceBuffer::Bytes(channels))) {}

  size_t workspace_bytes() const {
    return sums_bytes_ + all_reduce_buffer_bytes_ + 2 * sizeof(float) * channels_;
  }
  float* shift(std::byte* workspace) const {
    return reinterpret_cast<float*>(workspace + sums_bytes_ + all_reduce_buffer_bytes_);
  }
  float* slope(std::byte* workspace) const { return shift(workspace) + channels_; }

  // Enqueues the kernels, and the all-reduce if the context has one. sum(finish) calls
  // ChannelSums() with two sums and this workspace.
  template <typename Write, typename Sum>
  void Run(const RunContext& context, CUstream_st* stream, std::byte* workspace, const Write& write,
           const Sum& sum) const {
    if (!context.sum_over_ranks) return sum(FinishLocal<Write>{write});
    const AllReduceBuffer all_reduce_buffer{reinterpret_cast<double*>(workspace + sums_bytes_),
                                            channels_};
    sum(PackForAllReduce<Write>{write, all_reduce_buffer});
    all_reduce_buffer.SumOverRanks(context);
    ForEach(stream, channels_, UseGlobalSums<Write>{write, all_reduce_buffer});
  }

 private:
  const int64_t channels_;
  const size_t sums_bytes_, all_reduce_buffer_bytes_;
};

// The parameters of N neighboring channels. Forward and backward compute the same bits with them,
// so that backward can compute the mask of the ReLU again.
template <int N>
struct NormColumns {
  int64_t channel;
  Floats<N> mean, scale, beta;

  __device__ float Normalize(float x, int i) const { return fmaf(x - mean[i], scale[i], beta[i]); }
};

// The parameters of all channels, in device memory. gamma and beta may be null (1 and 0).
struct NormParameters {
  const float *mean, *rstd, *gamma, *beta;

  template <int N>
  __device__ NormColumns<N> At(int64_t channel) const {
    NormColumns<N> columns{channel, Load<N>(mean + channel), Load<N>(rstd + channel), {}};
    if (beta != nullptr) columns.beta = Load<N>(beta + channel);
    if (gamma == nullptr) return columns;
    const Floats<N> factors = Load<N>(gamma + channel);
    for (int i = 0; i < N; ++i) columns.scale[i] = factors[i] * columns.scale[i];
    return columns;
  }
};

}  // namespace carole::cuda
