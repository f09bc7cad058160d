// Depthwise convolutions: each input channel is a group and has K/C output channels (the channel
// multiplier). The filter is (R,S,K) in memory, so the innermost loop runs over channels.
#include <algorithm>

#include "src/backend/conv2d_geometry.h"
#include "src/backend/reference/math/bias.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

// Calls f(q, w) for each column q of y that reads a column w of x (not padding) through tap s.
template <typename F>
void ForColumns(const Conv2dGeometry& g, int64_t s, const F& f) {
  for (int64_t q = 0; q < g.q; ++q) {
    const int64_t w = g.InputColumn(q, s);
    if (w >= 0 && w < g.w) f(q, w);
  }
}

// Calls f(c, k) for every output channel k and its input channel c. For multiplier 1 this is one
// contiguous loop.
template <typename F>
void ForChannels(const Conv2dGeometry& g, const F& f) {
  if (g.k == g.c) {
    for (int64_t c = 0; c < g.c; ++c) f(c, c);
    return;
  }
  const int64_t multiplier = g.group_k();
  for (int64_t c = 0; c < g.c; ++c) {
    for (int64_t k = c * multiplier; k < (c + 1) * multiplier; ++k) f(c, k);
  }
}

template <typename T>
class Depthwise : public ReferenceKernel {
 public:
  Depthwise(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        g_(in_shape(0), in_shape(1), out_shape(0), spec.attributes.as<Conv2dAttributes>()) {
    input_layouts_[1] = Layout::Filter();
  }

  void Run(const RunContext&) override {
    T* y = out<T>(0);
    ForIndices(threads_, g_.rows(), [&](int64_t row) { RunRow(row, y + row * g_.q * g_.k); });
    AddBiasRelu(threads_, y, in<T>(2), in<T>(3), g_.pixels(), g_.k, g_.a.relu);
  }

 private:
  void RunRow(int64_t row, T* y) const {
    std::fill_n(y, g_.q * g_.k, T{0});
    for (int64_t r = 0; r < g_.r; ++r) {
      const int64_t h = g_.InputRow(row % g_.p, r);
      if (h < 0 || h >= g_.h) continue;
      const T* x = in<T>(0) + (row / g_.p * g_.h + h) * g_.w * g_.c;
      for (int64_t s = 0; s < g_.s; ++s) {
        const T* filter = in<T>(1) + (r * g_.s + s) * g_.k;
        ForColumns(g_, s, [&](int64_t q, int64_t w) {
          T* to = y + q * g_.k;
          const T* from = x + w * g_.c;
          ForChannels(g_, [&](int64_t c, int64_t k) { to[k] += from[c] * filter[k]; });
        });
      }
    }
  }

  const Conv2dGeometry g_;
};

template <typename T>
class DepthwiseBackwardData : public ReferenceKernel {
 public:
  DepthwiseBackwardData(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        g_(out_shape(0), in_shape(1), in_shape(0), spec.attributes.as<Conv2dAttributes>()) {
    input_layouts_[1] = Layout::Filter();
  }

  void Run(const RunContext&) override {
    T* dx = out<T>(0);
    ForIndices(threads_, g_.n * g_.h,
               [&](int64_t row) { RunRow(row / g_.h, row % g_.h, dx + row * g_.w * g_.c); });
  }

 private:
  void RunRow(int64_t image, int64_t h, T* dx) const {
    std::fill_n(dx, g_.w * g_.c, T{0});
    for (int64_t r = 0; r < g_.r; ++r) {
      const int64_t p = g_.OutputRow(h, r);
      if (p < 0) continue;
      const T* dy = in<T>(0) + (image * g_.p + p) * g_.q * g_.k;
      for (int64_t s = 0; s < g_.s; ++s) {
        const T* filter = in<T>(1) + (r * g_.s + s) * g_.k;
        ForColumns(g_, s, [&](int64_t q, int64_t w) {
          T* to = dx + w * g_.c;
          const T* from = dy + q * g_.k;
          ForChannels(g_, [&](int64_t c, int64_t k) { to[c] += from[k] * filter[k]; });
        });
      }
    }
  }

  const Conv2dGeometry g_;
};

template <typename T>
class DepthwiseBackwardFilter : public ReferenceKernel {
 public:
  DepthwiseBackwardFilter(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads),
        g_(in_shape(0), out_shape(0), in_shape(1), spec.attributes.as<Conv2dAttributes>()) {
    output_layouts_[0] = Layout::Filter();
    workspace_bytes_ = sizeof(double) * g_.taps() * g_.k;
  }

  void Run(const RunContext&) override {
    T* dw = out<T>(0);
    double* sums = reinterpret_cast<double*>(memory_.workspace);
    ForIndices(threads_, g_.taps(), [&](int64_t tap) {
      SumTap(tap / g_.s, tap % g_.s, sums + tap * g_.k);
      for (int64_t i = tap * g_.k; i < (tap + 1) * g_.k; ++i) dw[i] = static_cast<T>(sums[i]);
    });
    if (T* db = out<T>(1)) ColumnSums(threads_, in<T>(1), g_.pixels(), g_.k, db);
  }

 private:
  void SumTap(int64_t r, int64_t s, double* sums) const {
    std::fill_n(sums, g_.k, 0.0);
    for (int64_t row = 0; row < g_.rows(); ++row) {
      const int64_t h = g_.InputRow(row % g_.p, r);
      if (h < 0 || h >= g_.h) continue;
      const T* x = in<T>(0) + (row / g_.p * g_.h + h) * g_.w * g_.c;
      const T* dy = in<T>(1) + row * g_.q * g_.k;
      ForColumns(g_, s, [&](int64_t q, int64_t w) {
        const T* a = x + w * g_.c;
        const T* b = dy + q * g_.k;
        ForChannels(g_, [&](int64_t c, int64_t k) { sums[k] += double{a[c]} * b[k]; });
      });
    }
  }

  const Conv2dGeometry g_;
};

bool HasDepthwiseShapes(const OpSpec& spec, const TensorSpec& x, const TensorSpec& w,
                        const TensorSpec& y) {
  const auto& a = spec.attributes.as<Conv2dAttributes>();
  return !HasReluYInput(spec) && Conv2dGeometry(x.shape, w.shape, y.shape, a).IsDepthwise();
}
bool IsDepthwise(const OpSpec& spec, int threads) {
  return SupportsTypes(spec, threads) &&
         HasDepthwiseShapes(spec, spec.inputs[0], spec.inputs[1], spec.outputs[0]);
}
bool IsDepthwiseBackwardData(const OpSpec& spec, int threads) {
  return SupportsTypes(spec, threads) &&
         HasDepthwiseShapes(spec, spec.outputs[0], spec.inputs[1], spec.inputs[0]);
}
bool IsDepthwiseBackwardFilter(const OpSpec& spec, int threads) {
  return SupportsTypes(spec, threads) &&
         HasDepthwiseShapes(spec, spec.inputs[0], spec.outputs[0], spec.inputs[1]);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2d, .make = MakeTyped<Depthwise>, .supports = IsDepthwise, .priority = 1},
    {.kind = op::kConv2dBackwardData,
     .make = MakeTyped<DepthwiseBackwardData>,
     .supports = IsDepthwiseBackwardData,
     .priority = 1},
    {.kind = op::kConv2dBackwardFilter,
     .make = MakeTyped<DepthwiseBackwardFilter>,
     .supports = IsDepthwiseBackwardFilter,
     .priority = 1},
};

}  // namespace

KernelRows DepthwiseKernels() { return kRows; }

}  // namespace carole::reference
