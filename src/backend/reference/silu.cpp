// SiLU and its gradient.
#include "src/backend/ops/silu.h"

#include <cmath>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

double Silu(double x) { return x * (1 / (1 + std::exp(-x))); }

double SiluBackward(double dy, double x) {
  const double s = 1 / (1 + std::exp(-x));
  return dy * s * (1 + x * (1 - s));
}

constexpr KernelRow kRows[] = {
    {.kind = op::kSilu, .make = MakeMap<Silu>},
    {.kind = op::kSiluBackward, .make = MakeMap<SiluBackward>},
};

}  // namespace

KernelRows SiluKernels() { return kRows; }

}  // namespace carole::reference
