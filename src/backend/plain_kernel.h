// Base class of kernels that work on plain layouts.
#pragma once

#include "src/backend/backend.h"

namespace carole {

// A kernel whose tensors have plain layouts: activations of rank 4 are NHWC, everything else is
// row-major. Constructors of derived classes may change input_layouts_ and output_layouts_.
class PlainKernel : public Kernel {
 public:
  explicit PlainKernel(const OpSpec& spec) : spec_(spec) {
    for (const TensorSpec& t : spec.inputs)
      input_layouts_.push_back(Layout::PlainActivation(t.shape));
    for (const TensorSpec& t : spec.outputs)
      output_layouts_.push_back(Layout::PlainActivation(t.shape));
  }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

 protected:
  // The elements of input or output number i, or nullptr if it is absent.
  template <typename T>
  T* in(size_t i) const {
    return IsPresent(spec_.inputs, i) ? memory_.inputs[i].as<T>() : nullptr;
  }
  template <typename T>
  T* out(size_t i) const {
    return IsPresent(spec_.outputs, i) ? memory_.outputs[i].as<T>() : nullptr;
  }
  const Shape& in_shape(size_t i) const { return spec_.inputs[i].shape; }
  const Shape& out_shape(size_t i) const { return spec_.outputs[i].shape; }

  const OpSpec spec_;
  KernelMemory memory_;
};

}  // namespace carole
