// Adds zeros around an image, or removes pixels at its edges.
#include "src/backend/ops/pad2d.h"

#include <algorithm>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
class Pad2d : public ReferenceKernel {
 public:
  Pad2d(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads), pad_(spec.attributes.as<Pad2dAttributes>().padding) {
    CAROLE_CHECK(in_shape(0)[2] + pad_.top + pad_.bottom == out_shape(0)[2] &&
                     in_shape(0)[3] + pad_.left + pad_.right == out_shape(0)[3],
                 "pad2d from {} to {}", in_shape(0).ToString(), out_shape(0).ToString());
  }

  void Run(const RunContext&) override {
    const int64_t channels = in_shape(0)[1], h = in_shape(0)[2], w = in_shape(0)[3];
    const int64_t p = out_shape(0)[2], q = out_shape(0)[3];
    ForIndices(threads_, out_shape(0)[0] * p * q, [&](int64_t i) {
      const int64_t row = i / q % p - pad_.top, column = i % q - pad_.left;
      T* y = out<T>(0) + i * channels;
      if (row < 0 || row >= h || column < 0 || column >= w) {
        std::fill_n(y, channels, T{0});
      } else {
        const int64_t image = i / (p * q);
        std::copy_n(in<T>(0) + ((image * h + row) * w + column) * channels, channels, y);
      }
    });
  }

 private:
  const Padding pad_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kPad2d, .make = MakeTyped<Pad2d>},
};

}  // namespace

KernelRows Pad2dKernels() { return kRows; }

}  // namespace carole::reference
