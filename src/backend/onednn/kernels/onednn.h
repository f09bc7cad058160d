// What the oneDNN kernels share: layouts as memory descriptors, and a kernel that runs one
// primitive. Private to this folder: the only place for dnnl.hpp.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "src/backend/backend.h"
#include "src/core/float16.h"

namespace carole::onednn {

using Md = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

// A layout chosen by oneDNN. Filters of grouped convolutions are described with five dimensions
// (groups, K/groups, C/groups, R, S) though their Shape has four.
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

dnnl::engine& Engine();

// Whether this CPU, or what ONEDNN_MAX_CPU_ISA leaves of it, has these instructions.
bool HasIsa(dnnl::cpu_isa isa);

dnnl::memory::dims Dims(const Shape& shape);
dnnl::memory::data_type DataType(DType dtype);

// Maps (N,C,H,W) in blocks of channels (nChw16c, nChw8c), the library's favorite layouts: the
// block it takes on this CPU, 16 or 8, or 0 where it takes plain layouts; such maps; and the block
// of what this describes, 0 where that lies in another way.
int64_t ChannelBlock();
Md InChannelBlocks(const Shape& shape, dnnl::memory::data_type type, int64_t block);
int64_t ChannelBlockOf(const Md& md);

// The descriptor of a tensor that lies in `layout`; for kAny the one that lets a primitive choose.
Md ToMd(const TensorSpec& spec);
Md AnyMd(const TensorSpec& spec);
// A filter seen with its groups apart: (groups, K/groups, C/groups, R, S).
Md GroupedFilterMd(const TensorSpec& spec, int64_t groups);

// The other way: plain layouts are recognized, everything else stays opaque.
Layout ToLayout(const Md& md, const Shape& shape);

// `{prop_kind, …}` primitives all want these.
dnnl::primitive_attr UserScratchpad();

// A kernel that runs one primitive.
class PrimitiveKernel : public Kernel {
 public:
  PrimitiveKernel(const OpSpec& spec, int threads);
  void Bind(const KernelMemory& memory) override;
  void Run(const RunContext& context) override;

 protected:
  void SetPrimitive(dnnl::primitive primitive, const Md& scratchpad);
  void Input(int place, int argument, const Md& md);
  void Output(int place, int argument, const Md& md);

 private:
  struct Slot {
    bool output;
    int place;
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

// Makes K<float> or K<Bf16>, as the activations are stored.
template <template <typename> class K>
std::unique_ptr<Kernel> MakeTyped(const OpSpec& spec, int threads) {
  if (spec.inputs[0].dtype == DType::kBF16) return std::make_unique<K<Bf16>>(spec, threads);
  return std::make_unique<K<float>>(spec, threads);
}

// Makers, one for each family; each checks nothing that Supports() has checked already.
using KernelMaker = std::unique_ptr<Kernel>(const OpSpec& spec, int threads);
KernelMaker MakeConv2d, MakeConv2dBackwardData, MakeConv2dBackwardFilter;
// For filter gradients that the library has no fast primitive for.
bool WantsOwnDepthwise(const OpSpec& spec);
KernelMaker MakeDepthwiseBackwardFilter;
KernelMaker MakeLinear, MakeLinearBackwardData, MakeLinearBackwardFilter;
KernelMaker MakeBatchNorm, MakeBatchNormBackward;
KernelMaker MakeElementwise;  // activations, add, scale
KernelMaker MakeDropout;
KernelMaker MakeScaleChannels;  // and backward
KernelMaker MakeChannelCopy;    // concat, slice
KernelMaker MakePad2d, MakeNormalize;
KernelMaker MakePool2d, MakePool2dBackward;
KernelMaker MakeLrn;
KernelMaker MakeSoftmax, MakeSoftmaxCrossEntropy;
KernelMaker MakeReorder;

}  // namespace carole::onednn
