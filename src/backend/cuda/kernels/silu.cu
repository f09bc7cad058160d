// SiLU and its gradient.
#include "src/backend/cuda/kernels/map.h"
#include "src/backend/ops/silu.h"

namespace carole::cuda {
namespace {

__device__ float SigmoidOf(float x) { return 1 / (1 + expf(-x)); }

struct Silu {
  __device__ float operator()(float x, float) const { return x * SigmoidOf(x); }
};

struct SiluBackward {
  __device__ float operator()(float dy, float x) const {
    // s * (1 - s) is even in x
    const float e = expf(-fabsf(x)), slope = e / ((1 + e) * (1 + e));
    return dy * (SigmoidOf(x) + x * slope);
  }
};

template <typename F>
std::unique_ptr<Kernel> MakeSilu(const OpSpec& spec, const Device& device) {
  return MakeMap(spec, device, F());
}

constexpr KernelRow kRows[] = {
    {.kind = op::kSilu, .make = MakeSilu<Silu>},
    {.kind = op::kSiluBackward, .make = MakeSilu<SiluBackward>},
};

}  // namespace

KernelRows SiluKernels() { return kRows; }

}  // namespace carole::cuda
