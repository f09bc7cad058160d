// Base class of element-wise kernels. Private to this folder.
#pragma once

#include <algorithm>

#include "src/backend/onednn/kernels/onednn.h"
#include "src/core/divide_up.h"

namespace carole::onednn {

// Calls f(begin, count) for pieces of [0, total), in parallel.
template <typename F>
void ForPieces(int64_t total, int threads, const F& f) {
  constexpr int64_t kPiece = 8192;
  const int64_t pieces = DivideUp(total, kPiece);
#pragma omp parallel for num_threads(threads) schedule(static) if (pieces > 1)
  for (int64_t p = 0; p < pieces; ++p) f(p * kPiece, std::min(kPiece, total - p * kPiece));
}

// A kernel whose element i of the output needs only elements i of the inputs. It works in any
// layout that all its tensors have: the blocked layout if any input has one. The other inputs are
// then reordered to it, and the result need not be reordered back from plain.
template <typename T>
class ElementwiseKernel : public Kernel {
 public:
  // Blocked layouts contain padding channels, which must stay 0. If the operation does not map 0 to
  // 0, say so: the layout is then plain.
  ElementwiseKernel(const OpSpec& spec, int threads, bool keeps_zero = true) : threads_(threads) {
    Layout layout = Layout::PlainActivation(spec.outputs[0].shape);
    for (const TensorSpec& t : spec.inputs) {
      if (keeps_zero && layout.is_plain() && t.layout.opaque() != nullptr) layout = t.layout;
    }
    input_layouts_.assign(spec.inputs.size(), layout);
    output_layouts_ = {layout};
    count_ = static_cast<int64_t>(ByteSize(spec.outputs[0].shape, spec.outputs[0].dtype, layout) /
                                  sizeof(T));
  }

  int InPlaceInput(int) const override { return 0; }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }
  void Run(const RunContext&) override {
    ForPieces(count_, threads_, [&](int64_t begin, int64_t count) { Compute(begin, count); });
  }

 protected:
  // Computes the elements [begin, begin + count) of the output.
  virtual void Compute(int64_t begin, int64_t count) const = 0;

  size_t num_inputs() const { return memory_.inputs.size(); }
  const T* x(size_t input, int64_t begin) const { return memory_.inputs[input].as<T>() + begin; }
  T* y(int64_t begin) const { return memory_.outputs[0].as<T>() + begin; }

 private:
  int threads_;
  int64_t count_;
  KernelMemory memory_;
};

}  // namespace carole::onednn
