// Variables that the host sets.
#include "src/backend/ops/copies.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

constexpr auto kIn = kPosition<AssignInputs>;

template <typename T>
class Assign : public ReferenceKernel {
 public:
  using ReferenceKernel::ReferenceKernel;
  void Run(const RunContext&) override { *out<T>(0) = *in<T>(kIn.variable) = *in<T>(kIn.value); }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kAssign, .make = MakeTyped<Assign>},
};

}  // namespace

KernelRows AssignKernels() { return kRows; }

}  // namespace carole::reference
