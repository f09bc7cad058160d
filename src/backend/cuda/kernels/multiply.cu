// Multiplication of two tensors.
#include "src/backend/cuda/kernels/map.h"
#include "src/backend/ops/multiply.h"

namespace carole::cuda {
namespace {

struct Multiply {
  __device__ float operator()(float a, float b) const { return a * b; }
};

std::unique_ptr<Kernel> MakeMultiply(const OpSpec& spec, const Device& device) {
  return MakeMap(spec, device, Multiply());
}

constexpr KernelRow kRows[] = {
    {.kind = op::kMultiply, .make = MakeMultiply},
};

}  // namespace

KernelRows MultiplyKernels() { return kRows; }

}  // namespace carole::cuda
