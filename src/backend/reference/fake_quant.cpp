// Fake quantization and its gradient.
#include "src/backend/ops/fake_quant.h"

#include "src/backend/batch_rows.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

constexpr auto kIn = kPosition<FakeQuantInputs>;
constexpr auto kBackIn = kPosition<FakeQuantBackwardInputs>;
using Range = FakeQuantAttributes::Range;

// Tensors have the layout of x. A weight that has none yet gets that of filters.
class FakeQuantKernel : public ElementwiseKernel {
 public:
  FakeQuantKernel(const OpSpec& spec, int threads, int x)
      : ElementwiseKernel(spec, threads), a_(spec.attributes.as<FakeQuantAttributes>()), x_(x) {
    const TensorSpec& values = spec.inputs[x];
    const Layout layout = LayoutOfFakeQuant(values);
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      if (spec.inputs[i].present && spec.inputs[i].shape == values.shape)
        input_layouts_[i] = layout;
    }
    output_layouts_[0] = layout;
  }

 protected:
  template <typename T>
  bool IsDelayed(const T* step) const {
    return step != nullptr && static_cast<double>(*step) < static_cast<double>(a_.delay);
  }
  template <typename T>
  QuantGrid<T> Grid(const T* min, const T* max) const {
    return {*min, *max, static_cast<T>(a_.smallest_code()), static_cast<T>(a_.largest_code())};
  }
  int64_t count() const { return in_shape(x_).size(); }

  const FakeQuantAttributes a_;

 private:
  const size_t x_;
};

template <typename T>
class FakeQuant : public FakeQuantKernel {
 public:
  FakeQuant(const OpSpec& spec, int threads) : FakeQuantKernel(spec, threads, kIn.x) {}

  void Run(const RunContext& context) override {
    UpdateRange(context);
    const T* x = in<T>(kIn.x);
    T* y = out<T>(0);
    const bool delayed = IsDelayed(in<T>(kIn.step));
    const QuantGrid<T> grid = Grid(in<T>(kIn.min), in<T>(kIn.max));
    ForElements(threads_, count(), [&](int64_t i) { y[i] = delayed ? x[i] : grid.Round(x[i]); });
  }

 private:
  void UpdateRange(const RunContext& context) const {
    if (a_.range == Range::kFixed) return;
    const bool averages = a_.range == Range::kAverage;
    const Shape& shape = in_shape(kIn.x);
    const int64_t rows = averages ? ValidRows(context, shape[0]) : shape[0];
    const T* x = in<T>(kIn.x);
    T smallest = 0, largest = 0;
    for (int64_t i = 0; i < count() / shape[0] * rows; ++i) {
      smallest = std::min(smallest, x[i]);
      largest = std::max(largest, x[i]);
    }
    if (!averages) {
      *in<T>(kIn.min) = smallest;
      *in<T>(kIn.max) = largest;
    } else if (rows > 0) {
      *in<T>(kIn.min) = UpdateQuantAverage(smallest, *in<T>(kIn.biased_min), *in<T>(kIn.min_steps));
      *in<T>(kIn.max) = UpdateQuantAverage(largest, *in<T>(kIn.biased_max), *in<T>(kIn.max_steps));
    }
  }
};

template <typename T>
class FakeQuantBackward : public FakeQuantKernel {
 public:
  FakeQuantBackward(const OpSpec& spec, int threads) : FakeQuantKernel(spec, threads, kBackIn.x) {}

  void Run(const RunContext&) override {
    const T *dy = in<T>(kBackIn.dy), *x = in<T>(kBackIn.x);
    T* dx = out<T>(0);
    const bool delayed = IsDelayed(in<T>(kBackIn.step));
    const QuantGrid<T> grid = Grid(in<T>(kBackIn.min), in<T>(kBackIn.max));
    const T* l2_weight = in<T>(kBackIn.l2_weight);
    const T l2 = l2_weight != nullptr ? *l2_weight : T{0};
    ForElements(threads_, count(), [&](int64_t i) {
      const T y = delayed ? x[i] : grid.Round(x[i]);
      dx[i] = delayed || grid.Contains(x[i]) ? dy[i] + l2 * y : T{0};
    });
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kFakeQuant, .make = MakeTyped<FakeQuant>},
    {.kind = op::kFakeQuantBackward, .make = MakeTyped<FakeQuantBackward>},
};

}  // namespace

KernelRows FakeQuantKernels() { return kRows; }

}  // namespace carole::reference
