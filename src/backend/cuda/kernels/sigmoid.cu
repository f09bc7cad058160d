// Sigmoid and its gradient.
#include "src/backend/cuda/kernels/map.h"
#include "src/backend/ops/sigmoid.h"

namespace carole::cuda {
namespace {

__device__ float SigmoidOf(float x) { return 1 / (1 + expf(-x)); }

struct Sigmoid {
  __device__ float operator()(float x, float) const { return SigmoidOf(x); }
};

struct SigmoidBackward {
  __device__ float operator()(float dy, float y) const { return dy * (y * (1 - y)); }
};

template <typename F>
std::unique_ptr<Kernel> MakeSigmoid(const OpSpec& spec, const Device& device) {
  return MakeMap(spec, device, F());
}

constexpr KernelRow kRows[] = {
    {.kind = op::kSigmoid, .make = MakeSigmoid<Sigmoid>},
    {.kind = op::kSigmoidBackward, .make = MakeSigmoid<SigmoidBackward>},
};

}  // namespace

KernelRows SigmoidKernels() { return kRows; }

}  // namespace carole::cuda
