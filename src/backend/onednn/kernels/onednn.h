// Shared by all oneDNN kernels: layouts as oneDNN memory descriptors (Md), the base class of
// kernels that run one oneDNN primitive, and the rows of the table of kernels. Private to the
// oneDNN backend; dnnl.hpp is included nowhere else.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "src/backend/kernel_table.h"
#include "src/core/float16.h"

namespace carole::onednn {

using Md = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

// A layout that oneDNN chose. For filters of grouped convolutions, oneDNN uses five dimensions
// (groups, K/groups, C/groups, R, S), although their Shape has four.
class MdLayout : public OpaqueLayout {
 public:
  explicit MdLayout(Md md) : md_(std::move(md)) {}
  size_t bytes() const override { return md_.get_size(); }
  bool Equals(const OpaqueLayout& other) const override;
  std::string Name() const override;
  const Md& md() const { return md_; }

 private:
  Md md_;
};

// oneDNN's CPU engine.
dnnl::engine& Engine();

// Whether this CPU has these instructions and ONEDNN_MAX_CPU_ISA does not exclude them.
bool HasIsa(dnnl::cpu_isa isa);

dnnl::memory::dims Dims(const Shape& shape);
dnnl::memory::data_type DataType(DType dtype);

// oneDNN's preferred layouts of activations (N,C,H,W) are blocks of channels: nChw16c or nChw8c.
// The block that oneDNN uses on this CPU: 16 or 8, or 0 if it uses plain layouts.
int64_t ChannelBlock();
// The descriptor of an activation in blocks of 16 or 8 channels.
Md InChannelBlocks(const Shape& shape, dnnl::memory::data_type type, int64_t block);
// The block of channels of this descriptor, or 0 if it has another layout.
int64_t ChannelBlockOf(const Md& md);

// The descriptor of a tensor in spec.layout. For layout Any, the descriptor lets the primitive
// choose. Throws InternalError if another backend made the layout.
Md ToMd(const TensorSpec& spec);
// The descriptor that lets the primitive choose the layout.
Md AnyMd(const TensorSpec& spec);
// The five-dimensional descriptor of a grouped filter: (groups, K/groups, C/groups, R, S).
Md GroupedFilterMd(const TensorSpec& spec, int64_t groups);

// The layout that a descriptor stands for. Plain layouts are recognized, all others are opaque.
Layout ToLayout(const Md& md, const Shape& shape);

// Attributes of a primitive whose scratchpad is part of the kernel's workspace.
dnnl::primitive_attr UserScratchpad();

// A kernel that runs one primitive. Constructors of derived classes call SetPrimitive(), and
// Input() and Output() for each tensor that is present.
class PrimitiveKernel : public Kernel {
 public:
  PrimitiveKernel(const OpSpec& spec, int threads);
  void Bind(const KernelMemory& memory) override;
  void Run(const RunContext& context) override;

 protected:
  void SetPrimitive(dnnl::primitive primitive, const Md& scratchpad);
  // Passes input or output number `index` to the primitive as this argument (DNNL_ARG_…), in this
  // layout.
  void Input(int index, int argument, const Md& md);
  void Output(int index, int argument, const Md& md);

 private:
  struct Slot {
    bool output;
    int index;
    int argument;
    Md md;
  };
  void AddArgument(int argument, const Md& md, std::byte* data);

  OpSpec spec_;
  int threads_;
  dnnl::primitive primitive_;
  Md scratchpad_;
  std::vector<Slot> slots_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  dnnl::stream stream_;
};

// What kernels are made for.
struct Cpu {
  int threads;
  Winograd winograd;
};
using KernelRow = KernelRowFor<const Cpu&>;
using KernelRows = KernelRowsFor<const Cpu&>;
std::span<KernelRows (*const)()> KernelFiles();

// Functions for KernelRow::make. They throw dnnl::error if oneDNN cannot make the primitive.
template <typename K>
std::unique_ptr<Kernel> Make(const OpSpec& spec, const Cpu& cpu) {
  return std::make_unique<K>(spec, cpu.threads);
}
// Makes a K<Bf16> if the first input is bf16, else a K<float>.
template <template <typename> class K>
std::unique_ptr<Kernel> MakeTyped(const OpSpec& spec, const Cpu& cpu) {
  if (spec.inputs[0].dtype == DType::kBF16) return Make<K<Bf16>>(spec, cpu);
  return Make<K<float>>(spec, cpu);
}

// Functions for KernelRow::supports. Whether all tensors are fp32, or activations and filters are
// bf16 and the others fp32. Results of products may have either type.
bool SupportsTypes(const OpSpec& spec, const Cpu& cpu);
// As above, but the first output may have either type in any case.
bool SupportsTypesButResult(const OpSpec& spec, const Cpu& cpu);
// Whether all tensors are fp32.
bool IsFp32(const OpSpec& spec, const Cpu& cpu);

}  // namespace carole::onednn
