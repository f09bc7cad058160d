// Fake quantization and its gradient, in any layout. The loops are compiled once for each x86-64
// level, the kernels only once.
//
// Rounding is bound by memory bandwidth, in spite of its division. A range that is measured takes
// one more pass over x. All threads get the same range, since the extremes are exact in any order.
// The loops have the expressions of QuantGrid, so that codes are those of the reference backend.
// QuantGrid itself must not be compiled for several levels: the linker would keep one of them.
#include <cstdint>

namespace carole::onednn {

// The members of QuantGrid. A range that is not empty.
struct Codes {
  float scale, lo, hi, zero_point, smallest;
};

}  // namespace carole::onednn

#ifdef CAROLE_SIMD_NAMESPACE

#include "src/backend/onednn/vector/vector_math.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {
namespace {

// The largest whole number that is not above v, for 0 <= v < 2^31. NaN stays NaN. GCC does not
// vectorize std::floor(), since it may set floating-point flags.
template <typename V>
V Floor(V v) {
  constexpr int kLanes = sizeof(V) / sizeof(float);
  using Ints = typename VectorOf<int32_t, kLanes>::Type;
  const V whole = __builtin_convertvector(__builtin_convertvector(v, Ints), V);
  return v == v ? whole : v;
}

template <typename V>
V Rounded(V v, const Codes& c) {
  const V raised = v < c.lo ? V{} + c.lo : v, clamped = raised > c.hi ? V{} + c.hi : raised;
  const V code = c.smallest + Floor((clamped - c.lo) / c.scale + 0.5f);
  return (code - c.zero_point) * c.scale;
}

// The gradient d where it passes.
template <typename V>
V Passed(V d, V v, const Codes& c) {
  const V raised = v >= c.lo ? d : V{};
  return v <= c.hi ? raised : V{};
}

}  // namespace

void FakeQuant(const float* x, float* y, int64_t count, Codes c) {
  Map(x, y, count, [&](auto v) { return Rounded(v, c); });
}

void FakeQuantBackward(const float* dy, const float* x, float* dx, int64_t count, Codes c,
                       float l2_weight) {
  if (l2_weight == 0) {
    Map(dy, x, dx, count, [&](auto d, auto v) { return Passed(d, v, c); });
  } else {
    Map(dy, x, dx, count,
        [&](auto d, auto v) { return Passed(d + l2_weight * Rounded(v, c), v, c); });
  }
}

// Extends [*smallest, *largest] by x. NaN has no effect.
void Extremes(const float* x, int64_t count, float* smallest, float* largest) {
  constexpr int kLanes = 16;
  using V = Vec<kLanes>;
  V low = V{} + *smallest, high = V{} + *largest;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const V v = Load<kLanes>(x + i);
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  const auto extend = [&](float v, float w) {
    *smallest = v < *smallest ? v : *smallest;
    *largest = w > *largest ? w : *largest;
  };
  for (int lane = 0; lane < kLanes; ++lane) extend(low[lane], high[lane]);
  for (; i < count; ++i) extend(x[i], x[i]);
}

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE

#else

#include <algorithm>
#include <cmath>

#include "src/backend/batch_rows.h"
#include "src/backend/onednn/kernels/elementwise.h"
#include "src/backend/onednn/vector/vector.h"
#include "src/backend/ops/fake_quant.h"
#include "src/core/simd.h"

namespace carole::onednn {

CAROLE_EACH_SIMD_LEVEL(void FakeQuant(const float* x, float* y, int64_t count, Codes c);
                       void FakeQuantBackward(const float* dy, const float* x, float* dx,
                                              int64_t count, Codes c, float l2_weight);
                       void Extremes(const float* x, int64_t count, float* smallest,
                                     float* largest);)

namespace {

constexpr auto kIn = kPosition<FakeQuantInputs>;
constexpr auto kBackIn = kPosition<FakeQuantBackwardInputs>;
using Range = FakeQuantAttributes::Range;

// Rounding maps 0 to 0, so that the padding of blocked layouts stays 0. Images are the outermost
// dimension of all layouts of activations, so that valid rows are the first elements.
class FakeQuantKernel : public Kernel {
 public:
  FakeQuantKernel(const OpSpec& spec, int threads, int x)
      : a_(spec.attributes.as<FakeQuantAttributes>()), threads_(threads) {
    const TensorSpec& values = spec.inputs[x];
    const Layout layout = LayoutOfFakeQuant(values);
    const auto choose = [&](const TensorSpec& t) {
      return t.present && t.shape == values.shape ? layout : Layout::RowMajor();
    };
    for (const TensorSpec& t : spec.inputs) input_layouts_.push_back(choose(t));
    output_layouts_ = {layout};
    count_ = static_cast<int64_t>(ByteSize(values.shape, values.dtype, layout) / sizeof(float));
  }

  int InPlaceInput(int) const override { return 0; }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

 protected:
  // The elements of input number i, or nullptr if it is absent.
  float* in(int i) const {
    const auto input = static_cast<size_t>(i);
    const bool present = input < memory_.inputs.size() && memory_.inputs[input].data != nullptr;
    return present ? memory_.inputs[input].as<float>() : nullptr;
  }
  float* out() const { return memory_.outputs[0].as<float>(); }

  bool IsDelayed(const float* step) const {
    return step != nullptr && static_cast<double>(*step) < static_cast<double>(a_.delay);
  }
  QuantGrid<float> GridOf(const float* min, const float* max) const {
    return {*min, *max, static_cast<float>(a_.smallest_code()),
            static_cast<float>(a_.largest_code())};
  }
  static Codes CodesOf(const QuantGrid<float>& grid) {
    return {grid.scale, grid.lo, grid.hi, grid.zero_point, grid.smallest};
  }

  const FakeQuantAttributes a_;
  const int threads_;
  int64_t count_;  // of elements, including padding
  KernelMemory memory_;
};

class FakeQuant : public FakeQuantKernel {
 public:
  FakeQuant(const OpSpec& spec, int threads)
      : FakeQuantKernel(spec, threads, kIn.x), rows_(RowsOf(spec.inputs[kIn.x].shape)) {}

  void Run(const RunContext& context) override {
    static const auto loop = PickSimd(simd_v2::FakeQuant, simd_v3::FakeQuant, simd_v4::FakeQuant);
    UpdateRange(context);
    const float* x = in(kIn.x);
    float* y = out();
    const QuantGrid<float> grid = GridOf(in(kIn.min), in(kIn.max));
    const bool delayed = IsDelayed(in(kIn.step));
    ForPieces(count_, threads_, [&](int64_t begin, int64_t count) {
      if (delayed) {
        if (x != y) std::copy_n(x + begin, count, y + begin);
      } else if (grid.is_empty()) {
        std::transform(x + begin, x + begin + count, y + begin,
                       [&](float v) { return grid.Round(v); });
      } else {
        loop(x + begin, y + begin, count, CodesOf(grid));
      }
    });
  }

 private:
  static int64_t RowsOf(const Shape& shape) { return shape.rank() > 0 ? shape[0] : 1; }

  void UpdateRange(const RunContext& context) const {
    if (a_.range == Range::kFixed) return;
    const bool averages = a_.range == Range::kAverage;
    const int64_t rows = averages ? ValidRows(context, rows_) : rows_;
    // Blocks of filters are also padded in the outermost dimension.
    const auto [smallest, largest] = ExtremesOf(rows == rows_ ? count_ : count_ / rows_ * rows);
    if (!averages) {
      *in(kIn.min) = smallest;
      *in(kIn.max) = largest;
    } else if (rows > 0) {
      *in(kIn.min) = UpdateQuantAverage(smallest, *in(kIn.biased_min), *in(kIn.min_steps));
      *in(kIn.max) = UpdateQuantAverage(largest, *in(kIn.biased_max), *in(kIn.max_steps));
    }
  }

  // The smallest and largest of 0 and the first `count` elements of x.
  std::pair<float, float> ExtremesOf(int64_t count) const {
    static const auto loop = PickSimd(simd_v2::Extremes, simd_v3::Extremes, simd_v4::Extremes);
    const float* x = in(kIn.x);
    float smallest = 0, largest = 0;
    constexpr int64_t kPiece = 8192;
    const int64_t pieces = DivideUp(count, kPiece);
#pragma omp parallel for num_threads(threads_) schedule(static) reduction(min         \
                                                                          : smallest) \
    reduction(max                                                                     \
              : largest) if (pieces > 1)
    for (int64_t p = 0; p < pieces; ++p)
      loop(x + p * kPiece, std::min(kPiece, count - p * kPiece), &smallest, &largest);
    return {smallest, largest};
  }

  const int64_t rows_;
};

class FakeQuantBackward : public FakeQuantKernel {
 public:
  FakeQuantBackward(const OpSpec& spec, int threads) : FakeQuantKernel(spec, threads, kBackIn.x) {}

  void Run(const RunContext&) override {
    static const auto loop = PickSimd(simd_v2::FakeQuantBackward, simd_v3::FakeQuantBackward,
                                      simd_v4::FakeQuantBackward);
    const float *dy = in(kBackIn.dy), *x = in(kBackIn.x), *l2_weight = in(kBackIn.l2_weight);
    float* dx = out();
    const float l2 = l2_weight != nullptr ? *l2_weight : 0;
    const QuantGrid<float> grid = GridOf(in(kBackIn.min), in(kBackIn.max));
    const bool delayed = IsDelayed(in(kBackIn.step));
    ForPieces(count_, threads_, [&](int64_t begin, int64_t count) {
      if (delayed && l2 != 0) {
        Vectors<float>().scaled_add(dy + begin, x + begin, dx + begin, count, l2);
      } else if (!delayed && !grid.is_empty()) {
        loop(dy + begin, x + begin, dx + begin, count, CodesOf(grid), l2);
      } else if (dy != dx) {
        std::copy_n(dy + begin, count, dx + begin);
      }
    });
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kFakeQuant, .make = Make<FakeQuant>, .supports = IsFp32},
    {.kind = op::kFakeQuantBackward, .make = Make<FakeQuantBackward>, .supports = IsFp32},
};

}  // namespace

KernelRows FakeQuantKernels() { return kRows; }

}  // namespace carole::onednn

#endif
