// The statistics of a batch that batch norm needs. batch_norm.cu explains how they are computed.
// Private to src/backend/cuda.
#pragma once

#include "src/backend/cuda/kernels/batch_norm.h"

namespace carole::cuda {

// Sums of d and d^2 for ChannelSums(), with d = x - pivot.
template <typename T, int N>
struct StatisticsSums {
  static constexpr int kReadsInFlight = 4;
  ValidPixels valid_pixels;
  int64_t channels;
  const T* x;

  struct Pivot {
    int64_t channel;
    Floats<N> values;
  };
  __device__ int64_t Pixels() const { return valid_pixels.NumValid(); }
  __device__ Pivot Column(int64_t channel) const { return {channel, Load<N>(x + channel)}; }
  __device__ Pack<T, N> Read(const Pivot& pivot, int64_t pixel) const {
    return ReadPack<N>(x + pixel * channels + pivot.channel);
  }
  __device__ void Add(const Pivot& pivot, int64_t, const Pack<T, N>& read, Floats<N>* sums) const {
    const Floats<N> values = ToFloats(read);
    for (int i = 0; i < N; ++i) {
      const float d = values[i] - pivot.values[i];
      sums[0][i] += d;
      sums[1][i] += d * d;
    }
  }
};

// Mean and biased variance of a channel's pixels.
struct Moments {
  double mean, variance, count;

  __device__ static Moments Of(const TwoSums& sums) {
    const double mean = sums.first / sums.count, spread = sums.second / sums.count - mean * mean;
    return {mean, spread < 0 ? 0 : spread, sums.count};
  }
};

// Writes mean and rstd of a channel, and updates its moving statistics.
struct WriteMoments {
  double epsilon, rate;  // rate: 1 - decay of the moving statistics; 0 in inference
  float *moving_mean, *moving_variance, *mean, *rstd;

  __device__ void operator()(int64_t c, const Moments& m) const {
    if (rate != 0) {
      const double n = m.count, unbiased = n > 1 ? m.variance * n / (n - 1) : m.variance;
      moving_mean[c] = moving_mean[c] + rate * (m.mean - moving_mean[c]);
      moving_variance[c] = moving_variance[c] + rate * (unbiased - moving_variance[c]);
    }
    mean[c] = static_cast<float>(m.mean);
    rstd[c] = static_cast<float>(1 / sqrt(m.variance + epsilon));
  }
};

// Writes the moments of this rank's pixels, from its sums.
template <typename T>
struct WriteLocalMoments {
  ValidPixels valid_pixels;
  const T* x;
  WriteMoments write;

  __device__ void operator()(int64_t c, const double* sums) const {
    Moments m = Moments::Of({sums[0], sums[1], static_cast<double>(valid_pixels.NumValid())});
    m.mean += static_cast<float>(x[c]);
    write(c, m);
  }
};

// Writes the sums of x and x^2 for the all-reduce. They have the same pivot on all ranks, 0. As
// doubles they keep all digits that fp32 has.
template <typename T>
struct PackMoments {
  ValidPixels valid_pixels;
  const T* x;
  AllReduceBuffer all_reduce_buffer;

  __device__ void operator()(int64_t c, const double* sums) const {
    const double n = static_cast<double>(valid_pixels.NumValid());
    // If no row is valid, x can hold any value, including infinity. The pivot is then 0.
    const double pivot = n > 0 ? static_cast<float>(x[c]) : 0;
    all_reduce_buffer.Put(c, {sums[0] + n * pivot, sums[1] + pivot * (2 * sums[0] + n * pivot), n});
  }
};

// Writes the moments of all ranks' pixels, for ForEach().
struct WriteGlobalMoments {
  AllReduceBuffer all_reduce_buffer;
  WriteMoments write;

  __device__ void operator()(int64_t c) const { write(c, Moments::Of(all_reduce_buffer.At(c))); }
};

// Computes mean and rstd of each channel of x (N,C,H,W) or (N,C) from its valid rows.
template <typename T, int N>
class BatchStatistics {
 public:
  BatchStatistics(const Shape& x, const Device& device)
      : stream_(device.stream),
        channels_(x[1]),
        pixels_(x, device.run_context),
        sums_bytes_(AlignUp(PartialSumsBytes<2, N>(pixels_.all(), channels_))) {}

  size_t workspace_bytes() const {
    return sums_bytes_ + AlignUp(AllReduceBuffer::Bytes(channels_));
  }
  const ValidPixels& pixels() const { return pixels_; }

  // Enqueues the kernels, and the all-reduce if the context has one.
  void Run(const RunContext& context, const T* x, std::byte* workspace,
           const WriteMoments& write) const {
    if (!context.sum_over_ranks) return Sum(x, workspace, WriteLocalMoments<T>{pixels_, x, write});
    const AllReduceBuffer all_reduce_buffer{reinterpret_cast<double*>(workspace + sums_bytes_),
                                            channels_};
    Sum(x, workspace, PackMoments<T>{pixels_, x, all_reduce_buffer});
    all_reduce_buffer.SumOverRanks(context);
    ForEach(stream_, channels_, WriteGlobalMoments{all_reduce_buffer, write});
  }

 private:
  template <typename Finish>
  void Sum(const T* x, std::byte* workspace, const Finish& finish) const {
    ChannelSums<2, N>(stream_, pixels_.all(), channels_, workspace,
                      StatisticsSums<T, N>{pixels_, channels_, x}, finish);
  }

  CUstream_st* const stream_;
  const int64_t channels_;
  const ValidPixels pixels_;
  const size_t sums_bytes_;
};

}  // namespace carole::cuda
