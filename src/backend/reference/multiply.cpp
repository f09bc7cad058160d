// Multiplication of two tensors.
#include "src/backend/ops/multiply.h"

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

double Multiply(double a, double b) { return a * b; }

constexpr KernelRow kRows[] = {
    {.kind = op::kMultiply, .make = MakeMap<Multiply>},
};

}  // namespace

KernelRows MultiplyKernels() { return kRows; }

}  // namespace carole::reference
