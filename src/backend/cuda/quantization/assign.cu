// Variables that the host sets.
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/ops/copies.h"

namespace carole::cuda {
namespace {

constexpr auto kIn = kPosition<AssignInputs>;

struct CopyScalar {
  const float* value;
  float *variable, *y;
  __device__ void operator()(int64_t) const { *variable = *y = *value; }
};

class Assign : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    ForEach(device_.stream, 1,
            CopyScalar{in<float>(kIn.value), in<float>(kIn.variable), out<float>(0)});
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kAssign, .make = Make<Assign>},
};

}  // namespace

KernelRows AssignKernels() { return kRows; }

}  // namespace carole::cuda
