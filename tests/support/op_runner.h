// Runs one operation on a backend as an Executable would, and checks how it uses memory. Outputs
// and workspace start as NaN (all bytes 0xFF). Guard bytes surround every buffer. Inputs must not
// change. A second run must give the same bits.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/tensor/buffer.h"
#include "tests/support/elements.h"

namespace carole::testing {

// While an object of this class exists, GuardedMemory of this thread is allocated from the backend,
// so that both its kernels and the host can access it.
class UseMemoryOf {
 public:
  explicit UseMemoryOf(const Backend& backend) { current = &backend; }
  ~UseMemoryOf() { current = nullptr; }
  UseMemoryOf(const UseMemoryOf&) = delete;
  UseMemoryOf& operator=(const UseMemoryOf&) = delete;

  static DeviceMemory Allocate(size_t bytes) {
    if (current != nullptr) return current->AllocateShared(bytes);
    auto buffer = std::make_shared<Buffer>(bytes);
    return {buffer, buffer->data()};
  }

 private:
  static inline thread_local const Backend* current = nullptr;
};

// Memory between guard bytes. A default-constructed one stands for an absent input or output.
class GuardedMemory {
 public:
  GuardedMemory() = default;
  explicit GuardedMemory(size_t bytes)
      : bytes_(bytes), memory_(UseMemoryOf::Allocate(bytes + 2 * kGuard)) {
    std::memset(memory_.get(), kPattern, kGuard);
    std::memset(data() + bytes_, kPattern, kGuard);
    Poison();
  }

  std::byte* data() const { return memory_ == nullptr ? nullptr : memory_.get() + kGuard; }
  size_t bytes() const { return bytes_; }
  void Poison() {
    if (bytes_ > 0) std::memset(data(), 0xFF, bytes_);
  }

  std::vector<std::byte> Copy() const { return {data(), data() + bytes_}; }
  void Restore(const std::vector<std::byte>& copy) {
    if (bytes_ > 0) std::memcpy(data(), copy.data(), bytes_);
  }

  bool GuardsIntact() const {
    for (size_t i = 0; data() != nullptr && i < kGuard; ++i) {
      if (memory_.get()[i] != std::byte{kPattern}) return false;
      if (data()[bytes_ + i] != std::byte{kPattern}) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = Buffer::kAlignment;
  static constexpr unsigned char kPattern = 0xA5;

  size_t bytes_ = 0;
  DeviceMemory memory_;
};

// A tensor with its memory.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  GuardedTensor(const Shape& shape, DType dtype, const Layout& layout)
      : memory_(ByteSize(shape, dtype, layout)),
        tensor_{memory_.data(), shape, dtype, layout},
        present_(true) {}
  explicit GuardedTensor(const TensorSpec& spec) {
    if (spec.present) *this = GuardedTensor(spec.shape, spec.dtype, spec.layout);
  }

  bool present() const { return present_; }
  const Tensor& tensor() const { return tensor_; }
  const Layout& layout() const { return tensor_.layout; }
  GuardedMemory& memory() { return memory_; }
  const GuardedMemory& memory() const { return memory_; }

  // The elements in the order of memory. Only for plain layouts.
  Elements Read() const { return present_ ? ReadElements(tensor_) : Elements(); }
  void Write(const Elements& values) { Fill(tensor_, values); }

 private:
  GuardedMemory memory_;
  Tensor tensor_;
  bool present_ = false;
};

// A copy of the tensor in another layout, made by the backend.
inline GuardedTensor Reordered(const Backend& backend, const GuardedTensor& from,
                               const Layout& layout) {
  GuardedTensor to(from.tensor().shape, from.tensor().dtype, layout);
  backend.Reorder(from.tensor(), to.tensor());
  backend.Synchronize();
  EXPECT_TRUE(to.memory().GuardsIntact()) << "reorder from " << from.layout() << " to " << layout;
  return to;
}

// Whether a kernel may change this input: the moving statistics of batch normalization, the range
// of fake quantization, a variable that is set.
inline bool IsState(const OpSpec& spec, size_t input) {
  constexpr auto kRange = kPosition<FakeQuantInputs>;
  const auto index = static_cast<int>(input);
  if (spec.kind == op::kBatchNorm) return index >= kPosition<BatchNormInputs>.moving_mean;
  if (spec.kind == op::kFoldedBatchNorm)
    return index >= kPosition<FoldedBatchNormInputs>.moving_mean;
  if (spec.kind == op::kAssign) return index == kPosition<AssignInputs>.variable;
  if (spec.kind == op::kFakeQuant) {
    const auto& a = spec.attributes.as<FakeQuantAttributes>();
    return a.range != FakeQuantAttributes::Range::kFixed && index >= kRange.min &&
           index <= kRange.max_steps;
  }
  return false;
}

// One operation with its kernel and memory.
class OpRun {
 public:
  // Reorders `inputs` to the layouts that the kernel wants. With `in_place`, output 0 uses the
  // memory of the input that the kernel allows for it.
  OpRun(const Backend& backend, const OpSpec& spec, const std::vector<GuardedTensor>& inputs,
        bool in_place = false)
      : backend_(backend), spec_(spec), kernel_(backend.MakeKernel(spec)) {
    CAROLE_CHECK_EQ(inputs.size(), spec.inputs.size(), "inputs of {}", Name(spec.kind));
    CAROLE_CHECK_EQ(kernel_->input_layouts().size(), spec.inputs.size(), "input layouts");
    CAROLE_CHECK_EQ(kernel_->output_layouts().size(), spec.outputs.size(), "output layouts");
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs_.push_back(inputs[i].present() ? Reordered(backend, inputs[i], InputLayout(i, inputs))
                                            : GuardedTensor());
    }
    for (size_t i = 0; i < spec.outputs.size(); ++i) {
      const TensorSpec& t = spec.outputs[i];
      outputs_.push_back(t.present ? GuardedTensor(t.shape, t.dtype, kernel_->output_layouts()[i])
                                   : GuardedTensor());
    }
    workspace_ = GuardedMemory(kernel_->workspace_bytes());
    if (in_place) alias_ = kernel_->InPlaceInput(0);
  }

  // Whether output 0 can use the memory of an input.
  bool CanRunInPlace() const {
    const int i = kernel_->InPlaceInput(0);
    return i >= 0 && inputs_[i].present() &&
           inputs_[i].memory().bytes() == outputs_[0].memory().bytes();
  }

  void Run(const RunContext& context) {
    std::vector<std::vector<std::byte>> before;
    for (const GuardedTensor& v : inputs_) before.push_back(v.memory().Copy());
    Bind();
    RunKernel(context);
    CheckMemory(before);
    const auto first = CopyOutputs();
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].memory().Restore(before[i]);
    for (GuardedTensor& v : outputs_) v.memory().Poison();
    workspace_.Poison();
    RunKernel(context);
    EXPECT_TRUE(CopyOutputs() == first) << Name(spec_.kind) << ": a second run gives other bits";
  }

  // Output i in the kernel's layout.
  GuardedTensor& output(size_t i) { return outputs_[i]; }
  // Input i after the run.
  const GuardedTensor& input(size_t i) const { return inputs_[i]; }
  const Kernel& kernel() const { return *kernel_; }

 private:
  // Opaque outputs of another kernel (argmax) are passed on in their layout.
  Layout InputLayout(size_t i, const std::vector<GuardedTensor>& inputs) const {
    const Layout& wanted = kernel_->input_layouts()[i];
    return wanted.is_any() ? inputs[i].layout() : wanted;
  }

  void Bind() {
    KernelMemory memory;
    for (const GuardedTensor& v : inputs_) memory.inputs.push_back(v.tensor());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      memory.outputs.push_back(outputs_[i].tensor());
      if (i == 0 && alias_ >= 0) memory.outputs[0].data = inputs_[alias_].tensor().data;
    }
    memory.workspace = workspace_.data();
    kernel_->Bind(memory);
  }

  void RunKernel(const RunContext& context) {
    backend_.BeginRun(context);
    kernel_->Run(context);
    backend_.Synchronize();
    if (alias_ >= 0) outputs_[0].memory().Restore(inputs_[alias_].memory().Copy());
  }

  std::vector<std::vector<std::byte>> CopyOutputs() const {
    std::vector<std::vector<std::byte>> copies;
    for (size_t i = 0; i < outputs_.size(); ++i) copies.push_back(outputs_[i].memory().Copy());
    return copies;
  }

  void CheckMemory(const std::vector<std::vector<std::byte>>& before) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      EXPECT_TRUE(inputs_[i].memory().GuardsIntact()) << "guard of input " << i;
      if (IsState(spec_, i) || static_cast<int>(i) == alias_) continue;
      EXPECT_TRUE(inputs_[i].memory().Copy() == before[i]) << "input " << i << " was changed";
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      EXPECT_TRUE(outputs_[i].memory().GuardsIntact()) << "guard of output " << i;
    }
    EXPECT_TRUE(workspace_.GuardsIntact()) << "guard of the workspace";
  }

  const Backend& backend_;
  const OpSpec spec_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<GuardedTensor> inputs_, outputs_;
  GuardedMemory workspace_;
  int alias_ = -1;
};

// Makes tensors with the spec's plain layouts and these elements. An absent input takes no
// elements.
inline std::vector<GuardedTensor> MakeInputs(const OpSpec& spec,
                                             const std::vector<Elements>& elements) {
  CAROLE_CHECK_EQ(elements.size(), spec.inputs.size(), "inputs of {}", Name(spec.kind));
  std::vector<GuardedTensor> values;
  for (size_t i = 0; i < elements.size(); ++i) {
    values.emplace_back(spec.inputs[i]);
    if (values[i].present()) values[i].Write(elements[i]);
  }
  return values;
}

// Runs an operation with plain layouts. Returns the elements of all outputs. `state`, if given,
// receives the inputs after the run.
inline std::vector<Elements> RunPlain(const Backend& backend, const OpSpec& spec,
                                      const std::vector<Elements>& inputs,
                                      const RunContext& context = {},
                                      std::vector<Elements>* state = nullptr) {
  OpRun run(backend, spec, MakeInputs(spec, inputs));
  run.Run(context);
  std::vector<Elements> outputs;
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    GuardedTensor& v = run.output(i);
    outputs.push_back(v.present() ? Reordered(backend, v, spec.outputs[i].layout).Read()
                                  : Elements());
  }
  if (state != nullptr) {
    state->clear();
    for (size_t i = 0; i < inputs.size(); ++i) state->push_back(run.input(i).Read());
  }
  return outputs;
}

}  // namespace carole::testing
