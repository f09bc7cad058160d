// Sigmoid and its gradient.
#include "src/backend/ops/sigmoid.h"

#include <cmath>

#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double SigmoidBackward(double dy, double y) { return dy * y * (1 - y); }

constexpr KernelRow kRows[] = {
    {.kind = op::kSigmoid, .make = MakeMap<Sigmoid>},
    {.kind = op::kSigmoidBackward, .make = MakeMap<SigmoidBackward>},
};

}  // namespace

KernelRows SigmoidKernels() { return kRows; }

}  // namespace carole::reference
