// A kernel that works on plain layouts: activations NHWC (rank 4), everything else row-major, but
// where its constructor says otherwise.
#pragma once

#include "src/backend/backend.h"

namespace carole {

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
  // The elements of a place, or nullptr when it is absent.
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
