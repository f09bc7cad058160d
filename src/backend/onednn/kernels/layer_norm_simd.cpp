// Layer normalization over the channels of each pixel, on blocked and NHWC layouts. The loops are
// compiled once for each x86-64 level, the kernels only once.
//
// A pixel's channels are read several times: for mean, variance and result. They stay in the
// first-level cache, so the time is that of one pass over memory. In blocked layouts, each vector
// of a pixel is one cache line. The sums for dgamma and dbeta are made for each piece of a fixed
// grid of pixels. They are added in a fixed order, so results do not depend on the number of
// threads.
#include <cstdint>

namespace carole::onednn {

// The channels of one pixel: `blocks` runs of `lanes` elements, `distance` elements apart. The next
// pixel follows after `lanes` elements.
struct ChannelRuns {
  int64_t blocks, lanes, distance;
};

}  // namespace carole::onednn

#ifdef CAROLE_SIMD_NAMESPACE

#include <cmath>

#include "src/backend/onednn/vector/lanes.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {
namespace {

// Calls f.operator()<kLanes>(offset of the vector's elements, its first channel).
template <typename F>
void ForVectors(const ChannelRuns& runs, const F& f) {
  for (int64_t b = 0; b < runs.blocks; ++b) {
    ForLanes(runs.lanes, [&]<int kLanes>(int64_t lane) {
      f.template operator()<kLanes>(b * runs.distance + lane, b * runs.lanes + lane);
    });
  }
}

// The sum of f.operator()<kLanes>(offset, channel) over all channels.
template <typename F>
float SumOf(const ChannelRuns& runs, const F& f) {
  Vec<16> wide = {};
  float sum = 0;
  ForVectors(runs, [&]<int kLanes>(int64_t at, int64_t channel) {
    const Vec<kLanes> v = f.template operator()<kLanes>(at, channel);
    if constexpr (kLanes == 16) {
      wide += v;
    } else if constexpr (kLanes == 1) {
      sum += v;
    } else {
      for (int i = 0; i < kLanes; ++i) sum += v[i];
    }
  });
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) wide[i] += wide[i + half];
  }
  return sum + wide[0];
}

struct Moments {
  float mean, rstd;
};

template <typename T>
Moments MomentsOf(const T* x, const ChannelRuns& runs, float epsilon) {
  const auto n = static_cast<float>(runs.blocks * runs.lanes);
  const float mean =
      SumOf(runs, [&]<int kLanes>(int64_t at, int64_t) { return Load<kLanes>(x + at); }) / n;
  const float squares = SumOf(runs, [&]<int kLanes>(int64_t at, int64_t) {
    const Vec<kLanes> d = Load<kLanes>(x + at) - mean;
    return d * d;
  });
  return {mean, 1 / std::sqrt(squares / n + epsilon)};
}

}  // namespace

template <typename T>
void LayerNorm(const T* x, T* y, int64_t pixels, const ChannelRuns& runs, const float* gamma,
               const float* beta, float epsilon) {
  for (int64_t i = 0; i < pixels; ++i, x += runs.lanes, y += runs.lanes) {
    const Moments m = MomentsOf(x, runs, epsilon);
    ForVectors(runs, [&]<int kLanes>(int64_t at, int64_t channel) {
      const Vec<kLanes> xhat = (Load<kLanes>(x + at) - m.mean) * m.rstd;
      Store(y + at, xhat * Load<kLanes>(gamma + channel) + Load<kLanes>(beta + channel));
    });
  }
}

template <typename T>
void LayerNormBackward(const T* dy, const T* x, T* dx, int64_t pixels, const ChannelRuns& runs,
                       const float* gamma, float epsilon, float* dgamma, float* dbeta) {
  const auto n = static_cast<float>(runs.blocks * runs.lanes);
  for (int64_t i = 0; i < pixels; ++i, x += runs.lanes, dy += runs.lanes) {
    const Moments m = MomentsOf(x, runs, epsilon);
    ForVectors(runs, [&]<int kLanes>(int64_t at, int64_t channel) {
      const Vec<kLanes> d = Load<kLanes>(dy + at);
      const Vec<kLanes> xhat = (Load<kLanes>(x + at) - m.mean) * m.rstd;
      Store(dgamma + channel, Load<kLanes>(dgamma + channel) + d * xhat);
      Store(dbeta + channel, Load<kLanes>(dbeta + channel) + d);
    });
    if (dx == nullptr) continue;
    const float mean_g = SumOf(runs,
                               [&]<int kLanes>(int64_t at, int64_t channel) {
                                 return Load<kLanes>(dy + at) * Load<kLanes>(gamma + channel);
                               }) /
                         n;
    const float mean_gx = SumOf(runs,
                                [&]<int kLanes>(int64_t at, int64_t channel) {
                                  return Load<kLanes>(dy + at) * Load<kLanes>(gamma + channel) *
                                         ((Load<kLanes>(x + at) - m.mean) * m.rstd);
                                }) /
                          n;
    ForVectors(runs, [&]<int kLanes>(int64_t at, int64_t channel) {
      const Vec<kLanes> g = Load<kLanes>(dy + at) * Load<kLanes>(gamma + channel);
      const Vec<kLanes> xhat = (Load<kLanes>(x + at) - m.mean) * m.rstd;
      Store(dx + at, m.rstd * (g - mean_g - xhat * mean_gx));
    });
    dx += runs.lanes;
  }
}

#define CAROLE_INSTANTIATE(T)                                                                    \
  template void LayerNorm(const T*, T*, int64_t, const ChannelRuns&, const float*, const float*, \
                          float);                                                                \
  template void LayerNormBackward(const T*, const T*, T*, int64_t, const ChannelRuns&,           \
                                  const float*, float, float*, float*);
CAROLE_INSTANTIATE(float)
CAROLE_INSTANTIATE(Bf16)
#undef CAROLE_INSTANTIATE

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE

#else

#include <algorithm>

#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/ops/layer_norm.h"
#include "src/core/divide_up.h"
#include "src/core/simd.h"

namespace carole::onednn {

CAROLE_EACH_SIMD_LEVEL(template <typename T>
                       void LayerNorm(const T* x, T* y, int64_t pixels, const ChannelRuns& runs,
                                      const float* gamma, const float* beta, float epsilon);
                       template <typename T>
                       void LayerNormBackward(const T* dy, const T* x, T* dx, int64_t pixels,
                                              const ChannelRuns& runs, const float* gamma,
                                              float epsilon, float* dgamma, float* dbeta);)

namespace {

constexpr auto kIn = kPosition<LayerNormInputs>;
constexpr auto kBackIn = kPosition<LayerNormBackwardInputs>;
constexpr auto kBackOut = kPosition<LayerNormBackwardOutputs>;

// What forward and backward share. Blocked layouts are used only if all their channels are real,
// because padding must not count.
class LayerNormKernel : public Kernel {
 public:
  LayerNormKernel(const OpSpec& spec, int x, int threads)
      : threads_(threads),
        epsilon_(static_cast<float>(spec.attributes.as<LayerNormAttributes>().epsilon)) {
    const Shape& shape = spec.inputs[x].shape;
    Layout layout = Layout::PlainActivation(shape);
    for (const TensorSpec& t : spec.inputs) {
      const Layout known = t.present && t.shape == shape ? KnownLayout(t) : layout;
      if (!known.is_plain() && shape[1] % Planes(shape, known).lanes == 0) layout = known;
    }
    const auto choose = [&](const TensorSpec& t) {
      return t.present && t.shape == shape ? layout : Layout::RowMajor();
    };
    for (const TensorSpec& t : spec.inputs) input_layouts_.push_back(choose(t));
    for (const TensorSpec& t : spec.outputs) output_layouts_.push_back(choose(t));
    const Planes planes(shape, layout);
    runs_ = {planes.blocks, planes.lanes, planes.pixels * planes.lanes};
    // In plain layouts, all pixels of the batch are neighbors.
    const bool joined = planes.blocks == 1;
    images_ = joined ? 1 : planes.images;
    pixels_ = joined ? planes.images * planes.pixels : planes.pixels;
    const int64_t pieces = std::max(DivideUp(kPieces, images_), DivideUp(pixels_, kMaxPiece));
    piece_ = DivideUp(pixels_, pieces);
    pieces_ = DivideUp(pixels_, piece_);
    workspace_bytes_ = sizeof(float) * static_cast<size_t>(channels() * (2 + 2 * units()));
  }

  void Bind(const KernelMemory& memory) override { memory_ = memory; }

 protected:
  int64_t channels() const { return runs_.blocks * runs_.lanes; }
  int64_t units() const { return images_ * pieces_; }
  // Array number i of the workspace, which holds one value for each channel.
  float* Channels(int64_t i) const {
    return reinterpret_cast<float*>(memory_.workspace) + i * channels();
  }

  // The values of input number i; `otherwise` for each channel if it is absent.
  const float* ValuesOr(int i, float otherwise, float* scratch) const {
    const auto input = static_cast<size_t>(i);
    if (input < memory_.inputs.size() && memory_.inputs[input].data != nullptr)
      return memory_.inputs[input].as<float>();
    std::fill_n(scratch, channels(), otherwise);
    return scratch;
  }

  // Calls f(unit, offset of its first pixel, number of pixels) in parallel.
  template <typename F>
  void ForUnits(const F& f) const {
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t u = 0; u < units(); ++u) {
      const int64_t first = u % pieces_ * piece_;
      f(u, (u / pieces_ * runs_.blocks * pixels_ + first) * runs_.lanes,
        std::min(piece_, pixels_ - first));
    }
  }

  static constexpr int64_t kPieces = 64;      // enough for the threads of any CPU to share them
  static constexpr int64_t kMaxPiece = 1024;  // more pixels would cost digits of their fp32 sums

  const int threads_;
  const float epsilon_;
  ChannelRuns runs_;
  int64_t images_, pixels_, piece_, pieces_;
  KernelMemory memory_;
};

template <typename T>
class LayerNorm : public LayerNormKernel {
 public:
  LayerNorm(const OpSpec& spec, int threads) : LayerNormKernel(spec, kIn.x, threads) {}

  void Run(const RunContext&) override {
    static const auto loop =
        PickSimd(simd_v2::LayerNorm<T>, simd_v3::LayerNorm<T>, simd_v4::LayerNorm<T>);
    const float* gamma = ValuesOr(kIn.gamma, 1, Channels(0));
    const float* beta = ValuesOr(kIn.beta, 0, Channels(1));
    const T* x = memory_.inputs[kIn.x].template as<T>();
    T* y = memory_.outputs[0].template as<T>();
    ForUnits([&](int64_t, int64_t at, int64_t pixels) {
      loop(x + at, y + at, pixels, runs_, gamma, beta, epsilon_);
    });
  }
};

template <typename T>
class LayerNormBackward : public LayerNormKernel {
 public:
  LayerNormBackward(const OpSpec& spec, int threads) : LayerNormKernel(spec, kBackIn.x, threads) {}

  void Run(const RunContext&) override {
    static const auto loop = PickSimd(simd_v2::LayerNormBackward<T>, simd_v3::LayerNormBackward<T>,
                                      simd_v4::LayerNormBackward<T>);
    const float* gamma = ValuesOr(kBackIn.gamma, 1, Channels(0));
    const T *dy = memory_.inputs[kBackIn.dy].template as<T>(),
            *x = memory_.inputs[kBackIn.x].template as<T>();
    const Tensor& dx = memory_.outputs[kBackOut.dx];
    ForUnits([&](int64_t unit, int64_t at, int64_t pixels) {
      float *dgamma = PartOf(kBackOut.dgamma, unit), *dbeta = PartOf(kBackOut.dbeta, unit);
      std::fill_n(dgamma, channels(), 0.f);
      std::fill_n(dbeta, channels(), 0.f);
      loop(dy + at, x + at, dx.data != nullptr ? dx.as<T>() + at : nullptr, pixels, runs_, gamma,
           epsilon_, dgamma, dbeta);
    });
    AddParts(kBackOut.dgamma);
    AddParts(kBackOut.dbeta);
  }

 private:
  // The sums of one unit for dgamma or dbeta, whose number is `output`.
  float* PartOf(int output, int64_t unit) const {
    return Channels(2 + 2 * unit + (output == kBackOut.dbeta));
  }

  void AddParts(int output) const {
    if (memory_.outputs[output].data == nullptr) return;
    float* to = memory_.outputs[output].template as<float>();
#pragma omp parallel for num_threads(threads_) schedule(static) if (units() * channels() > 16384)
    for (int64_t c = 0; c < channels(); ++c) {
      double sum = 0;
      for (int64_t u = 0; u < units(); ++u) sum += PartOf(output, u)[c];
      to[c] = static_cast<float>(sum);
    }
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kLayerNorm, .make = MakeTyped<LayerNorm>},
    {.kind = op::kLayerNormBackward, .make = MakeTyped<LayerNormBackward>},
};

}  // namespace

KernelRows LayerNormKernels() { return kRows; }

}  // namespace carole::onednn

#endif
