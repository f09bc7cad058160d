// Fully connected layers: x (N,C), w (C,K) in memory, y (N,K).
#include "src/backend/ops/linear.h"

#include "src/backend/reference/math/bias.h"
#include "src/backend/reference/math/gemm.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
MatrixView<T> RowMajor(const T* data, int64_t rows, int64_t columns) {
  return {data, rows, columns, columns, 1};
}

template <typename T>
class Linear : public ReferenceKernel {
 public:
  Linear(const OpSpec& spec, int threads) : ReferenceKernel(spec, threads) {
    CAROLE_CHECK_EQ(out_shape(0), (Shape{in_shape(0)[0], in_shape(1)[0]}), "y of linear");
    CAROLE_CHECK_EQ(in_shape(0)[1], in_shape(1)[1], "columns of x and w of linear");
    input_layouts_[1] = Layout::Filter();
    workspace_bytes_ = MultiplyWorkspace<T>(in_shape(1)[1], in_shape(1)[0]);
  }

  void Run(const RunContext&) override {
    const int64_t n = in_shape(0)[0], c = in_shape(1)[1], k = in_shape(1)[0];
    T* y = out<T>(0);
    Multiply(threads_, RowMajor(in<T>(0), n, c), RowMajor(in<T>(1), c, k), y, k, false,
             memory_.workspace);
    AddBiasRelu<T>(threads_, y, in<T>(2), nullptr, n, k,
                   spec_.attributes.as<LinearAttributes>().relu);
  }
};

template <typename T>
class LinearBackwardData : public ReferenceKernel {
 public:
  LinearBackwardData(const OpSpec& spec, int threads) : ReferenceKernel(spec, threads) {
    CAROLE_CHECK_EQ(out_shape(0), (Shape{in_shape(0)[0], in_shape(1)[1]}), "dx of linear");
    input_layouts_[1] = Layout::Filter();
    workspace_bytes_ = MultiplyWorkspace<T>(in_shape(1)[0], in_shape(1)[1]);
  }

  void Run(const RunContext&) override {
    const int64_t n = in_shape(0)[0], c = in_shape(1)[1], k = in_shape(1)[0];
    Multiply(threads_, RowMajor(in<T>(0), n, k), RowMajor(in<T>(1), c, k).Transposed(), out<T>(0),
             c, false, memory_.workspace);
  }
};

template <typename T>
class LinearBackwardFilter : public ReferenceKernel {
 public:
  LinearBackwardFilter(const OpSpec& spec, int threads) : ReferenceKernel(spec, threads) {
    CAROLE_CHECK_EQ(out_shape(0), (Shape{in_shape(1)[1], in_shape(0)[1]}), "dw of linear");
    output_layouts_[0] = Layout::Filter();
    workspace_bytes_ = MultiplyWorkspace<T>(in_shape(1)[0], in_shape(1)[1]);
  }

  void Run(const RunContext&) override {
    const int64_t n = in_shape(0)[0], c = in_shape(0)[1], k = in_shape(1)[1];
    const T* dy = in<T>(1);
    Multiply(threads_, RowMajor(in<T>(0), n, c).Transposed(), RowMajor(dy, n, k), out<T>(0), k,
             false, memory_.workspace);
    if (T* db = out<T>(1)) ColumnSums(threads_, dy, n, k, db);
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kLinear, .make = MakeTyped<Linear>},
    {.kind = op::kLinearBackwardData, .make = MakeTyped<LinearBackwardData>},
    {.kind = op::kLinearBackwardFilter, .make = MakeTyped<LinearBackwardFilter>},
};

}  // namespace

KernelRows LinearKernels() { return kRows; }

}  // namespace carole::reference
