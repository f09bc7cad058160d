// Dropout and drop path, and their gradients.
#include "src/backend/dropout_mask.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
class Dropout : public ElementwiseKernel {
 public:
  Dropout(const OpSpec& spec, int threads)
      : ElementwiseKernel(spec, threads), a_(spec.attributes.as<DropoutAttributes>()) {
    CAROLE_CHECK(a_.keep > 0 && a_.keep <= 1, "dropout keeps elements with probability {}",
                 a_.keep);
  }

  void Run(const RunContext& context) override {
    const T* x = in<T>(0);
    T* y = out<T>(0);
    const DropoutMask mask(context, a_, in_shape(0));
    const T keep = static_cast<T>(mask.keep());
    ForRanges(threads_, in_shape(0).size(), kElementGrain, [&](int64_t begin, int64_t end) {
      const DropoutMask bits = mask;  // it caches random words, so each thread needs its own
      for (int64_t i = begin; i < end; ++i) y[i] = bits.Keep(i) ? x[i] / keep : T{0};
    });
  }

 private:
  const DropoutAttributes a_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kDropout, .make = MakeTyped<Dropout>},
    {.kind = op::kDropoutBackward, .make = MakeTyped<Dropout>},
};

}  // namespace

KernelRows DropoutKernels() { return kRows; }

}  // namespace carole::reference
