// Converts pixels (bytes) to the numbers that nets take as input.
#include "src/backend/ops/normalize.h"

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
class Normalize : public ReferenceKernel {
 public:
  using ReferenceKernel::ReferenceKernel;

  void Run(const RunContext&) override {
    const auto& a = spec_.attributes.as<NormalizeAttributes>();
    const int64_t channels = in_shape(0)[1];
    const uint8_t* x = in<uint8_t>(0);
    T* y = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) {
      y[i] = (static_cast<T>(x[i]) - static_cast<T>(a.subtract[i % channels])) * a.multiply;
    });
  }
};

bool IsNormalizationOfBytes(const OpSpec& spec, int) { return spec.inputs[0].dtype == DType::kU8; }

std::unique_ptr<Kernel> MakeNormalize(const OpSpec& spec, int threads) {
  if (spec.outputs[0].dtype == DType::kF64)
    return std::make_unique<Normalize<double>>(spec, threads);
  return std::make_unique<Normalize<float>>(spec, threads);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kNormalize, .make = MakeNormalize, .supports = IsNormalizationOfBytes},
};

}  // namespace

KernelRows NormalizeKernels() { return kRows; }

}  // namespace carole::reference
