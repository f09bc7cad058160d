// GELU and its gradient.
#include "src/backend/cuda/kernels/map.h"
#include "src/backend/ops/gelu.h"

namespace carole::cuda {
namespace {

constexpr auto kFactor = static_cast<float>(GeluAttributes::kSqrtOf2OverPi);
constexpr auto kCubic = static_cast<float>(GeluAttributes::kCubic);

// u; y = x * (1 + tanh(u)) / 2
__device__ float TanhArgument(float x) { return kFactor * (x + kCubic * (x * x * x)); }
__device__ float TanhGate(float x) { return 0.5f * (1 + tanhf(TanhArgument(x))); }
// The distribution function of the normal distribution.
__device__ float Phi(float x) { return 0.5f * erfcf(-0.70710678118654752f * x); }

struct Gelu {
  __device__ float operator()(float x, float) const { return x * Phi(x); }
};
struct TanhGelu {
  __device__ float operator()(float x, float) const { return x * TanhGate(x); }
};

struct GeluBackward {
  __device__ float operator()(float dy, float x) const {
    constexpr float kDensityAt0 = 0.398942280401432678f;  // 1 / sqrt(2 pi)
    return dy * (Phi(x) + x * (kDensityAt0 * expf(-0.5f * (x * x))));
  }
};
struct TanhGeluBackward {
  __device__ float operator()(float dy, float x) const {
    // (1 - tanh(u)^2) / 2, which is even in u, without its loss of digits
    const float e = expf(-2 * fabsf(TanhArgument(x))), half = 2 * e / ((1 + e) * (1 + e));
    return dy * (TanhGate(x) + x * half * (kFactor * (1 + 3 * kCubic * (x * x))));
  }
};

template <typename Exact, typename Tanh>
std::unique_ptr<Kernel> MakeGelu(const OpSpec& spec, const Device& device) {
  if (spec.attributes.as<GeluAttributes>().tanh) return MakeMap(spec, device, Tanh());
  return MakeMap(spec, device, Exact());
}

constexpr KernelRow kRows[] = {
    {.kind = op::kGelu, .make = MakeGelu<Gelu, TanhGelu>},
    {.kind = op::kGeluBackward, .make = MakeGelu<GeluBackward, TanhGeluBackward>},
};

}  // namespace

KernelRows GeluKernels() { return kRows; }

}  // namespace carole::cuda
