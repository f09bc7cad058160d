// Layer normalization over the channels of each pixel. x is a matrix (pixels, C) in memory.
//
// Several threads share a row of the matrix: the smallest power of two that gives each thread one
// pack of channels, at most a whole block. They add their sums in shared memory. A row is read
// several times, for mean, variance and result; the later reads hit the cache, so the time is that
// of one pass over device memory. The sums over pixels for dgamma and dbeta are a second pass, with
// the moments that the first one has stored.
#include "src/backend/cuda/kernels/channel_sums.h"
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/ops/layer_norm.h"

namespace carole::cuda {
namespace {

constexpr auto kIn = kPosition<LayerNormInputs>;
constexpr auto kBackIn = kPosition<LayerNormBackwardInputs>;
constexpr auto kBackOut = kPosition<LayerNormBackwardOutputs>;

// The matrix, and how many threads share a row.
struct Rows {
  int64_t pixels, channels;
  unsigned threads;
  float epsilon;
  const float *gamma, *beta;  // null: 1 and 0

  dim3 grid() const { return dim3(static_cast<unsigned>(DivideUp(pixels, kThreads / threads))); }
};

// The mean of a pixel's channels and 1 / their standard deviation.
struct Moments {
  float mean, rstd;
};

// What one thread works on: packs of one row. Threads without a row have no packs.
struct RowPart {
  int64_t pixel, channels;
  unsigned thread, threads;

  __device__ explicit RowPart(const Rows& rows)
      : pixel(int64_t{blockIdx.x} * (kThreads / rows.threads) + threadIdx.x / rows.threads),
        channels(pixel < rows.pixels ? rows.channels : 0),
        thread(threadIdx.x % rows.threads),
        threads(rows.threads) {}

  // Calls f(first channel) for each pack of N channels.
  template <int N, typename F>
  __device__ void ForPacks(const F& f) const {
    for (int64_t c = int64_t{thread} * N; c < channels; c += int64_t{threads} * N) f(c);
  }
  // Adds the values of all threads of the row; each of them gets the sum. All threads of the block
  // must call this.
  template <int kCount>
  __device__ void Sum(float (&values)[kCount]) const {
    __shared__ float sums[kCount][kThreads];
    for (int v = 0; v < kCount; ++v) sums[v][threadIdx.x] = values[v];
    __syncthreads();
    for (unsigned half = threads / 2; half > 0; half /= 2) {
      if (thread < half) {
        for (int v = 0; v < kCount; ++v) sums[v][threadIdx.x] += sums[v][threadIdx.x + half];
      }
      __syncthreads();
    }
    for (int v = 0; v < kCount; ++v) values[v] = sums[v][threadIdx.x - thread];
    __syncthreads();
  }
};

// The elements of row `part.pixel`, starting at channel c.
template <int N, typename T>
__device__ Floats<N> LoadAt(const T* matrix, const RowPart& part, int64_t c) {
  return Load<N>(matrix + part.pixel * part.channels + c);
}

// N values of a parameter; `otherwise` if it is absent.
template <int N>
__device__ Floats<N> ValuesOr(const float* values, int64_t c, float otherwise) {
  Floats<N> floats;
  for (int i = 0; i < N; ++i) floats[i] = values != nullptr ? values[c + i] : otherwise;
  return floats;
}

template <int N, typename T>
__device__ Moments MomentsOf(const T* x, const RowPart& part, const Rows& rows) {
  const auto n = static_cast<float>(rows.channels);
  float sum[1] = {}, squares[1] = {};
  part.ForPacks<N>([&](int64_t c) {
    const Floats<N> values = LoadAt<N>(x, part, c);
    for (int i = 0; i < N; ++i) sum[0] += values[i];
  });
  part.Sum(sum);
  const float mean = sum[0] / n;
  part.ForPacks<N>([&](int64_t c) {
    const Floats<N> values = LoadAt<N>(x, part, c);
    for (int i = 0; i < N; ++i) squares[0] += (values[i] - mean) * (values[i] - mean);
  });
  part.Sum(squares);
  return {mean, 1 / sqrtf(squares[0] / n + rows.epsilon)};
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) ForwardKernel(Rows rows, const T* x, T* y) {
  const RowPart part(rows);
  const Moments m = MomentsOf<N>(x, part, rows);
  part.ForPacks<N>([&](int64_t c) {
    Floats<N> values = LoadAt<N>(x, part, c);
    const Floats<N> gamma = ValuesOr<N>(rows.gamma, c, 1), beta = ValuesOr<N>(rows.beta, c, 0);
    for (int i = 0; i < N; ++i) values[i] = (values[i] - m.mean) * m.rstd * gamma[i] + beta[i];
    Store<N>(y + part.pixel * part.channels + c, values);
  });
}

// Writes the moments of each pixel, and dx unless it is null.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(Rows rows, const T* dy, const T* x, T* dx, Moments* moments) {
  const RowPart part(rows);
  const Moments m = MomentsOf<N>(x, part, rows);
  if (part.thread == 0 && part.channels > 0) moments[part.pixel] = m;
  if (dx == nullptr) return;  // all threads return here, so no barrier is missed
  // Calls use(c, g, xhat) for each pack.
  const auto for_packs = [&](const auto& use) {
    part.ForPacks<N>([&](int64_t c) {
      Floats<N> g = LoadAt<N>(dy, part, c), xhat = LoadAt<N>(x, part, c);
      const Floats<N> gamma = ValuesOr<N>(rows.gamma, c, 1);
      for (int i = 0; i < N; ++i) {
        g[i] *= gamma[i];
        xhat[i] = (xhat[i] - m.mean) * m.rstd;
      }
      use(c, g, xhat);
    });
  };
  float sums[2] = {};
  for_packs([&](int64_t, const Floats<N>& g, const Floats<N>& xhat) {
    for (int i = 0; i < N; ++i) {
      sums[0] += g[i];
      sums[1] += g[i] * xhat[i];
    }
  });
  part.Sum(sums);
  const auto n = static_cast<float>(rows.channels);
  const float mean_g = sums[0] / n, mean_gx = sums[1] / n;
  for_packs([&](int64_t c, const Floats<N>& g, const Floats<N>& xhat) {
    Floats<N> result;
    for (int i = 0; i < N; ++i) result[i] = m.rstd * (g[i] - mean_g - xhat[i] * mean_gx);
    Store<N>(dx + part.pixel * part.channels + c, result);
  });
}

// Sums of dy * xhat and of dy over pixels, for ChannelSums().
template <typename T, int N>
struct ParameterSums {
  static constexpr int kReadsInFlight = 2;
  const T *dy, *x;
  const Moments* moments;
  int64_t pixels, channels;

  struct Packs {
    Pack<T, N> dy, x;
    Moments m;
  };
  __device__ int64_t Pixels() const { return pixels; }
  __device__ int64_t Column(int64_t column) const { return column; }
  __device__ Packs Read(int64_t column, int64_t pixel) const {
    const int64_t at = pixel * channels + column;
    return {ReadPack<N>(dy + at), ReadPack<N>(x + at), moments[pixel]};
  }
  __device__ void Add(int64_t, int64_t, const Packs& read, Floats<N>* sums) const {
    const Floats<N> d = ToFloats(read.dy), values = ToFloats(read.x);
    for (int i = 0; i < N; ++i) {
      sums[0][i] += d[i] * ((values[i] - read.m.mean) * read.m.rstd);
      sums[1][i] += d[i];
    }
  }
};

struct WriteParameters {
  float *dgamma, *dbeta;  // either may be null
  __device__ void operator()(int64_t channel, const double* sums) const {
    if (dgamma != nullptr) dgamma[channel] = static_cast<float>(sums[0]);
    if (dbeta != nullptr) dbeta[channel] = static_cast<float>(sums[1]);
  }
};

Rows RowsOf(const OpSpec& spec, const Shape& x, int packed) {
  const int64_t packs = x[1] / packed;
  unsigned threads = 8;
  while (threads < kThreads && threads < packs) threads *= 2;
  return {.pixels = PixelsOf(x),
          .channels = x[1],
          .threads = threads,
          .epsilon = static_cast<float>(spec.attributes.as<LayerNormAttributes>().epsilon)};
}

template <typename T, int N>
class LayerNorm : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    Rows rows = RowsOf(spec_, in_shape(kIn.x), N);
    rows.gamma = in<float>(kIn.gamma);
    rows.beta = in<float>(kIn.beta);
    if (rows.pixels == 0) return;
    Launch(device_.stream, rows.grid(), ForwardKernel<T, N>, rows, in<T>(kIn.x), out<T>(0));
  }
};

template <typename T, int N>
class LayerNormBackward : public CudaKernel {
 public:
  LayerNormBackward(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device), pixels_(PixelsOf(x_shape())), channels_(x_shape()[1]) {
    workspace_bytes_ = moments_bytes() + PartialSumsBytes<2, N>(pixels_, channels_);
  }

  void Run(const RunContext&) override {
    Rows rows = RowsOf(spec_, x_shape(), N);
    rows.gamma = in<float>(kBackIn.gamma);
    if (rows.pixels == 0) return;
    const T *dy = in<T>(kBackIn.dy), *x = in<T>(kBackIn.x);
    auto* moments = reinterpret_cast<Moments*>(memory_.workspace);
    Launch(device_.stream, rows.grid(), BackwardKernel<T, N>, rows, dy, x, out<T>(kBackOut.dx),
           moments);
    const WriteParameters write{out<float>(kBackOut.dgamma), out<float>(kBackOut.dbeta)};
    if (write.dgamma == nullptr && write.dbeta == nullptr) return;
    ChannelSums<2, N>(device_.stream, pixels_, channels_, memory_.workspace + moments_bytes(),
                      ParameterSums<T, N>{dy, x, moments, pixels_, channels_}, write);
  }

 private:
  const Shape& x_shape() const { return in_shape(kBackIn.x); }
  // A multiple of the alignment of doubles, since Moments has 8 bytes.
  size_t moments_bytes() const { return sizeof(Moments) * static_cast<size_t>(pixels_); }

  const int64_t pixels_, channels_;
};

std::unique_ptr<Kernel> MakeLayerNorm(const OpSpec& spec, const Device& device) {
  return MakePacked<LayerNorm>(spec, device, spec.inputs[kIn.x].shape[1]);
}
std::unique_ptr<Kernel> MakeLayerNormBackward(const OpSpec& spec, const Device& device) {
  return MakePacked<LayerNormBackward>(spec, device, spec.inputs[kBackIn.x].shape[1]);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kLayerNorm, .make = MakeLayerNorm},
    {.kind = op::kLayerNormBackward, .make = MakeLayerNormBackward},
};

}  // namespace

KernelRows LayerNormKernels() { return kRows; }

}  // namespace carole::cuda
