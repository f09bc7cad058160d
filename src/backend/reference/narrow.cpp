// Models 16-bit storage around any fp32 kernel: operands are widened before it runs, results are
// rounded behind it.
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
    AddPlaces(spec.inputs, inputs_);
    AddPlaces(spec.outputs, outputs_);
  }

  // What is read has been copied before anything is written.
  int InPlaceInput(int output) const override {
    const int input = inner_->InPlaceInput(output);
    const bool alike = input >= 0 && Find(inputs_, input) == Find(outputs_, output);
    return alike ? input : -1;
  }

  void Bind(const KernelMemory& memory) override {
    memory_ = memory;
    KernelMemory wide = memory;
    Redirect(inputs_, wide.inputs);
    Redirect(outputs_, wide.outputs);
    inner_->Bind(wide);
  }

  void Run(const RunContext& context) override {
    for (const Place& p : inputs_)
      WidenAll(threads_, memory_.inputs[p.index].template as<Narrow>(), WideAt(p), p.count);
    inner_->Run(context);
    for (const Place& p : outputs_)
      RoundAll(threads_, WideAt(p), memory_.outputs[p.index].template as<Narrow>(), p.count);
  }

 private:
  // A place that is stored narrow, and where its fp32 copy lies in the workspace.
  struct Place {
    size_t index;
    int64_t count;
    size_t offset;
  };

  void AddPlaces(const std::vector<TensorSpec>& specs, std::vector<Place>& places) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].present || SizeOf(specs[i].dtype) != sizeof(Narrow)) continue;
      places.push_back({i, specs[i].shape.size(), workspace_bytes_});
      workspace_bytes_ += AlignUp(sizeof(float) * static_cast<size_t>(specs[i].shape.size()));
    }
  }

  static bool Find(const std::vector<Place>& places, int index) {
    return std::any_of(places.begin(), places.end(),
                       [&](const Place& p) { return static_cast<int>(p.index) == index; });
  }

  float* WideAt(const Place& p) const {
    return reinterpret_cast<float*>(memory_.workspace + p.offset);
  }

  void Redirect(const std::vector<Place>& places, std::vector<Tensor>& tensors) const {
    for (const Place& p : places) {
      tensors[p.index].data = memory_.workspace + p.offset;
      tensors[p.index].dtype = DType::kF32;
    }
  }

  const std::unique_ptr<Kernel> inner_;
  const int threads_;
  std::vector<Place> inputs_, outputs_;
  KernelMemory memory_;
};

template <typename Narrow>
std::unique_ptr<Kernel> Wrap(const OpSpec& spec, KernelMaker* maker, int threads) {
  OpSpec wide = spec;
  for (auto* places : {&wide.inputs, &wide.outputs}) {
    for (TensorSpec& t : *places) {
      if (SizeOf(t.dtype) == sizeof(Narrow)) t.dtype = DType::kF32;
    }
  }
  return std::make_unique<NarrowKernel<Narrow>>(maker(wide, threads), spec, threads);
}

}  // namespace

DType NarrowType(const OpSpec& spec) {
  for (const auto* places : {&spec.inputs, &spec.outputs}) {
    for (const TensorSpec& t : *places) {
      if (t.present && IsNarrow(t.dtype)) return t.dtype;
    }
  }
  return DType::kF32;
}

std::unique_ptr<Kernel> MakeNarrow(const OpSpec& spec, KernelMaker* maker, int threads) {
  if (NarrowType(spec) == DType::kBF16) return Wrap<Bf16>(spec, maker, threads);
  return Wrap<Fp16>(spec, maker, threads);
}

}  // namespace carole::reference
