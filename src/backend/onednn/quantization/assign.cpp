// Variables that the host sets.
#include "src/backend/onednn/kernels/onednn.h"
#include "src/backend/ops/copies.h"

namespace carole::onednn {
namespace {

constexpr auto kIn = kPosition<AssignInputs>;

class Assign : public Kernel {
 public:
  Assign(const OpSpec&, int) {
    input_layouts_.assign(2, Layout::RowMajor());
    output_layouts_ = {Layout::RowMajor()};
  }

  void Bind(const KernelMemory& memory) override { memory_ = memory; }
  void Run(const RunContext&) override {
    *memory_.outputs[0].as<float>() = *memory_.inputs[kIn.variable].as<float>() =
        *memory_.inputs[kIn.value].as<float>();
  }

 private:
  KernelMemory memory_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kAssign, .make = Make<Assign>},
};

}  // namespace

KernelRows AssignKernels() { return kRows; }

}  // namespace carole::onednn
