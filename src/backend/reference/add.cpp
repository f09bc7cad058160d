// Sums of activations.
#include "src/backend/ops/add.h"

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
class Add : public ElementwiseKernel {
 public:
  Add(const OpSpec& spec, int threads) : ElementwiseKernel(spec, threads) {
    for (const TensorSpec& t : spec.inputs) {
      CAROLE_CHECK_EQ(t.shape, spec.outputs[0].shape, "summand of add");
    }
  }

  void Run(const RunContext&) override {
    T* sum = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) {
      double total = 0;
      for (size_t j = 0; j < spec_.inputs.size(); ++j) {
        total += reinterpret_cast<const T*>(memory_.inputs[j].data)[i];
      }
      sum[i] = static_cast<T>(total);
    });
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kAdd, .make = MakeTyped<Add>},
};

}  // namespace

KernelRows AddKernels() { return kRows; }

}  // namespace carole::reference
