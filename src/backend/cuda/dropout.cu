// Dropout and drop path: the same bits as DropoutMask (src/backend/dropout_mask.h), from seed, step
// and first sample in device memory.
#include "src/backend/cuda/cuda.h"
#include "src/backend/cuda/launch.h"
#include "src/core/rng.h"

namespace carole::cuda {
namespace {

struct Mask {
  const RunNumbers* numbers;
  DropoutAttributes a;
  int64_t row;  // elements

  // The random word of element i of the local activation.
  __device__ uint32_t Word(int64_t i) const {
    const int64_t first = numbers->first_sample;
    const uint64_t index = static_cast<uint64_t>(a.per_row ? first + i / row : first * row + i);
    const RngPurpose purpose = a.per_row ? RngPurpose::kDropPath : RngPurpose::kDropout;
    const auto key = PhiloxKey(numbers->seed, purpose, static_cast<uint64_t>(numbers->step));
    return PhiloxBlock(key, static_cast<uint64_t>(a.layer), index / 4)[index % 4];
  }
};

class Dropout : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  void Run(const RunContext&) override {
    const float* x = in<float>(0);
    float* y = out<float>(0);
    const Mask mask{device_.numbers, spec_.attributes_as<DropoutAttributes>(),
                    in_shape(0).size() / in_shape(0)[0]};
    ForEach(device_.stream, in_shape(0).size(), [=] __device__(int64_t i) {
      const double keep = mask.a.KeepAt(mask.numbers->step);
      const bool kept = (mask.Word(i) >> 8) < static_cast<uint32_t>(ceil(keep * 0x1p24));
      y[i] = kept ? x[i] / static_cast<float>(keep) : 0;
    });
  }
};

}  // namespace

std::unique_ptr<Kernel> MakeDropout(const OpSpec& spec, const Device& device) {
  return std::make_unique<Dropout>(spec, device);
}

}  // namespace carole::cuda
