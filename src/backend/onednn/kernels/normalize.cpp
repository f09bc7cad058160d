// Converts pixels (bytes) to the numbers that nets take as input.
#include "src/backend/ops/normalize.h"

#include "src/backend/onednn/kernels/onednn.h"
#include "src/backend/plain_kernel.h"

namespace carole::onednn {
namespace {

template <typename T>
class Normalize : public PlainKernel {
 public:
  Normalize(const OpSpec& spec, int threads)
      : PlainKernel(spec),
        multiply_(spec.attributes.as<NormalizeAttributes>().multiply),
        threads_(threads) {
    const auto& subtract = spec.attributes.as<NormalizeAttributes>().subtract;
    const int64_t channels = in_shape(0)[1];
    for (int64_t i = 0; i < in_shape(0)[3] * channels; ++i)
      subtract_.push_back(subtract[i % channels]);
  }

  void Run(const RunContext&) override {
    const auto values = static_cast<int64_t>(subtract_.size());
    const int64_t rows = in_shape(0).size() / values;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t row = 0; row < rows; ++row)
      NormalizeRow(in<uint8_t>(0) + row * values, out<T>(0) + row * values);
  }

 private:
  void NormalizeRow(const uint8_t* __restrict x, T* __restrict y) const {
    for (size_t i = 0; i < subtract_.size(); ++i)
      y[i] = static_cast<T>((static_cast<float>(x[i]) - subtract_[i]) * multiply_);
  }

  std::vector<float> subtract_;  // one number for each value of a row of pixels
  const float multiply_;
  const int threads_;
};

std::unique_ptr<Kernel> MakeNormalize(const OpSpec& spec, const Cpu& cpu) {
  if (spec.outputs[0].dtype == DType::kBF16)
    return std::make_unique<Normalize<Bf16>>(spec, cpu.threads);
  return std::make_unique<Normalize<float>>(spec, cpu.threads);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kNormalize, .make = MakeNormalize, .supports = SupportsTypesButResult},
};

}  // namespace

KernelRows NormalizeKernels() { return kRows; }

}  // namespace carole::onednn
