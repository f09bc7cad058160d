// Emulates 16-bit storage with fp32 kernels: inputs are converted to fp32 before the kernel runs,
// and its results are rounded to the 16-bit type afterwards. "Narrow" means a 16-bit type here,
// "wide" its fp32 copy.
#include <algorithm>

#include "src/backend/reference/reference.h"
#include "src/core/float16.h"
#include "src/tensor/buffer.h"

namespace carole::reference {
namespace {

template <typename Narrow>
void WidenAll(int threads, const Narrow* from, float* to, int64_t count) {
  ForElements(threads, count, [&](int64_t i) { to[i] = static_cast<float>(from[i]); });
}

template <typename Narrow>
void RoundAll(int threads, const float* from, Narrow* to, int64_t count) {
  ForElements(threads, count, [&](int64_t i) { to[i] = static_cast<Narrow>(from[i]); });
}

template <typename Narrow>
class NarrowKernel : public Kernel {
 public:
  NarrowKernel(std::unique_ptr<Kernel> inner, const OpSpec& spec, int threads)
      : inner_(std::move(inner)), threads_(threads) {
    input_layouts_ = inner_->input_layouts();
    output_layouts_ = inner_->output_layouts();
    workspace_bytes_ = AlignUp(inner_->workspace_bytes());
    AddNarrow(spec.inputs, inputs_);
    AddNarrow(spec.outputs, outputs_);
  }

  // Works in place if input and output have the same type: all inputs are copied to the workspace
  // before an output is written.
  int InPlaceInput(int output) const override {
    const int input = inner_->InPlaceInput(output);
    const bool same_type = input >= 0 && Contains(inputs_, input) == Contains(outputs_, output);
    return same_type ? input : -1;
  }

  void Bind(const KernelMemory& memory) override {
    memory_ = memory;
    KernelMemory wide = memory;
    Redirect(inputs_, wide.inputs);
    Redirect(outputs_, wide.outputs);
    inner_->Bind(wide);
  }

  void Run(const RunContext& context) override {
    for (const NarrowTensor& t : inputs_)
      WidenAll(threads_, memory_.inputs[t.index].template as<Narrow>(), WideCopy(t), t.count);
    inner_->Run(context);
    for (const NarrowTensor& t : outputs_)
      RoundAll(threads_, WideCopy(t), memory_.outputs[t.index].template as<Narrow>(), t.count);
  }

 private:
  // An input or output that is stored in the 16-bit type.
  struct NarrowTensor {
    size_t index;   // among the inputs or outputs
    int64_t count;  // elements
    size_t offset;  // of the fp32 copy in the workspace
  };

  void AddNarrow(const std::vector<TensorSpec>& specs, std::vector<NarrowTensor>& narrow) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].present || SizeOf(specs[i].dtype) != sizeof(Narrow)) continue;
      narrow.push_back({i, specs[i].shape.size(), workspace_bytes_});
      workspace_bytes_ += AlignUp(sizeof(float) * static_cast<size_t>(specs[i].shape.size()));
    }
  }

  static bool Contains(const std::vector<NarrowTensor>& narrow, int index) {
    return std::any_of(narrow.begin(), narrow.end(),
                       [&](const NarrowTensor& t) { return static_cast<int>(t.index) == index; });
  }

  float* WideCopy(const NarrowTensor& t) const {
    return reinterpret_cast<float*>(memory_.workspace + t.offset);
  }

  // Makes the inner kernel use the fp32 copies.
  void Redirect(const std::vector<NarrowTensor>& narrow, std::vector<Tensor>& tensors) const {
    for (const NarrowTensor& t : narrow) {
      tensors[t.index].data = memory_.workspace + t.offset;
      tensors[t.index].dtype = DType::kF32;
    }
  }

  const std::unique_ptr<Kernel> inner_;
  const int threads_;
  std::vector<NarrowTensor> inputs_, outputs_;
  KernelMemory memory_;
};

template <typename Narrow>
std::unique_ptr<Kernel> Wrap(const OpSpec& spec, const KernelRow& row, int threads) {
  OpSpec wide = spec;
  for (auto* tensors : {&wide.inputs, &wide.outputs}) {
    for (TensorSpec& t : *tensors) {
      if (SizeOf(t.dtype) == sizeof(Narrow)) t.dtype = DType::kF32;
    }
  }
  return std::make_unique<NarrowKernel<Narrow>>(row.make(wide, threads), spec, threads);
}

}  // namespace

DType NarrowType(const OpSpec& spec) {
  for (const auto* tensors : {&spec.inputs, &spec.outputs}) {
    for (const TensorSpec& t : *tensors) {
      if (t.present && IsNarrow(t.dtype)) return t.dtype;
    }
  }
  return DType::kF32;
}

std::unique_ptr<Kernel> MakeNarrow(const OpSpec& spec, const KernelRow& row, int threads) {
  if (NarrowType(spec) == DType::kBF16) return Wrap<Bf16>(spec, row, threads);
  return Wrap<Fp16>(spec, row, threads);
}

}  // namespace carole::reference
