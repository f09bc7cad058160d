#include "src/backend/onednn/kernels/onednn.h"

#include <omp.h>

#include <algorithm>

#include "src/core/check.h"

namespace carole::onednn {

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

bool HasIsa(dnnl::cpu_isa isa) {
  const int has = static_cast<int>(dnnl::get_effective_cpu_isa()), wanted = static_cast<int>(isa);
  return (has & wanted) == wanted;
}

bool MdLayout::Equals(const OpaqueLayout& other) const {
  const auto* o = dynamic_cast<const MdLayout*>(&other);
  return o != nullptr && md_ == o->md_;
}

// The name in oneDNN's notation: dimensions as letters from the outermost on, blocked ones in upper
// case, then the blocks. "aBcd16b" is nChw16c.
std::string MdLayout::Name() const {
  const auto strides = md_.get_strides();
  const auto blocks = md_.get_inner_blks();
  const auto indexes = md_.get_inner_idxs();
  const auto dims = md_.get_padded_dims();
  std::vector<int> order(dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return strides[a] > strides[b]; });
  std::string name;
  for (int i : order) {
    const bool blocked = std::find(indexes.begin(), indexes.end(), i) != indexes.end();
    name += static_cast<char>((blocked ? 'A' : 'a') + i);
  }
  for (size_t i = 0; i < blocks.size(); ++i)
    name += std::to_string(blocks[i]) + static_cast<char>('a' + indexes[i]);
  return name;
}

dnnl::memory::dims Dims(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

dnnl::memory::data_type DataType(DType dtype) {
  switch (dtype) {
    case DType::kI32:
      return dnnl::memory::data_type::s32;
    case DType::kBF16:
      return dnnl::memory::data_type::bf16;
    case DType::kU8:
      return dnnl::memory::data_type::u8;
    default:
      return dnnl::memory::data_type::f32;
  }
}

int64_t ChannelBlock() {
  return HasIsa(dnnl::cpu_isa::avx512_core) ? 16 : HasIsa(dnnl::cpu_isa::avx2) ? 8 : 0;
}

Md InChannelBlocks(const Shape& shape, dnnl::memory::data_type type, int64_t block) {
  CAROLE_CHECK(block == 8 || block == 16, "blocks of {} channels", block);
  return Md(Dims(shape), type, block == 16 ? Tag::nChw16c : Tag::nChw8c);
}

int64_t ChannelBlockOf(const Md& md) {
  if (md.get_ndims() != 4) return 0;
  for (const auto& [tag, block] : {std::pair{Tag::nChw16c, 16}, std::pair{Tag::nChw8c, 8}})
    if (md == Md(md.get_dims(), md.get_data_type(), tag)) return block;
  return 0;
}

Md AnyMd(const TensorSpec& spec) { return Md(Dims(spec.shape), DataType(spec.dtype), Tag::any); }

Md ToMd(const TensorSpec& spec) {
  if (spec.layout.is_any()) return AnyMd(spec);
  if (const OpaqueLayout* opaque = spec.layout.opaque()) {
    const auto* layout = dynamic_cast<const MdLayout*>(opaque);
    CAROLE_CHECK(layout != nullptr, "layout {} is not oneDNN's", opaque->Name());
    return layout->md();
  }
  if (spec.shape.rank() == 0) return Md({1}, DataType(spec.dtype), Tag::a);
  return Md(Dims(spec.shape), DataType(spec.dtype), Dims(PlainStrides(spec.shape, spec.layout)));
}

Md GroupedFilterMd(const TensorSpec& spec, int64_t groups) {
  const Shape& s = spec.shape;
  const dnnl::memory::dims dims{groups, s[0] / groups, s[1], s[2], s[3]};
  if (spec.layout.is_any()) return Md(dims, DataType(spec.dtype), Tag::any);
  if (spec.layout.opaque() != nullptr) return ToMd(spec);
  const Shape strides = PlainStrides(s, spec.layout);
  return Md(dims, DataType(spec.dtype),
            {strides[0] * (s[0] / groups), strides[0], strides[1], strides[2], strides[3]});
}

Layout ToLayout(const Md& md, const Shape& shape) {
  const auto type = md.get_data_type();
  const DType dtype = type == dnnl::memory::data_type::s32    ? DType::kI32
                      : type == dnnl::memory::data_type::bf16 ? DType::kBF16
                                                              : DType::kF32;
  if (md.get_ndims() == shape.rank() && md.get_inner_nblks() == 0) {
    for (const Layout& plain :
         {Layout::PlainActivation(shape), Layout::Filter(), Layout::RowMajor()}) {
      if (ToMd({.shape = shape, .dtype = dtype, .layout = plain}) == md) return plain;
    }
  }
  // For a single pixel, blocks of channels without padding are the same as NHWC. The argmax of a
  // pool (in bytes) stays opaque, because it cannot be reordered.
  const bool pixel = shape.rank() == 4 && shape[2] == 1 && shape[3] == 1 && type == DataType(dtype);
  if (pixel && md.get_padded_dims() == md.get_dims() && ChannelBlockOf(md) != 0)
    return Layout::Nhwc();
  return Layout::Opaque(std::make_shared<MdLayout>(md));
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

PrimitiveKernel::PrimitiveKernel(const OpSpec& spec, int threads)
    : spec_(spec), threads_(threads), stream_(Engine()) {
  input_layouts_.resize(spec.inputs.size());
  output_layouts_.resize(spec.outputs.size());
}

void PrimitiveKernel::SetPrimitive(dnnl::primitive primitive, const Md& scratchpad) {
  primitive_ = std::move(primitive);
  scratchpad_ = scratchpad;
  workspace_bytes_ = scratchpad.get_size();
}

void PrimitiveKernel::Input(int index, int argument, const Md& md) {
  input_layouts_[index] = ToLayout(md, spec_.inputs[index].shape);
  slots_.push_back({false, index, argument, md});
}

void PrimitiveKernel::Output(int index, int argument, const Md& md) {
  output_layouts_[index] = ToLayout(md, spec_.outputs[index].shape);
  slots_.push_back({true, index, argument, md});
}

void PrimitiveKernel::AddArgument(int argument, const Md& md, std::byte* data) {
  memories_.emplace_back(md, Engine(), data);
  arguments_.push_back({argument, memories_.back().get()});
}

void PrimitiveKernel::Bind(const KernelMemory& memory) {
  memories_.clear();
  arguments_.clear();
  for (const Slot& slot : slots_) {
    AddArgument(slot.argument, slot.md,
                (slot.output ? memory.outputs : memory.inputs)[slot.index].data);
  }
  if (workspace_bytes_ > 0) AddArgument(DNNL_ARG_SCRATCHPAD, scratchpad_, memory.workspace);
}

void PrimitiveKernel::Run(const RunContext&) {
  omp_set_num_threads(threads_);
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    throw DeviceError(fmt::format("[onednn] {} of {}: execution failed with status {}",
                                  Name(spec_.kind), spec_.inputs[0].shape.ToString(),
                                  static_cast<int>(status)));
  }
}

namespace {

bool FitTypes(const OpSpec& spec, bool any_result) {
  const bool narrow = spec.inputs[0].dtype == DType::kBF16;
  const auto fits = [&](const TensorSpec& t, bool is_activation, bool any) {
    if (!t.present || t.dtype == DType::kI32 || t.dtype == DType::kU8) return true;
    if (any) return t.dtype == DType::kF32 || t.dtype == DType::kBF16;
    return t.dtype == (narrow && is_activation ? DType::kBF16 : DType::kF32);
  };
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const bool is_activation = IsActivationInput(spec.kind, i) || IsFilterInput(spec.kind, i);
    if (!fits(spec.inputs[i], is_activation, false)) return false;
  }
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    if (!fits(spec.outputs[o], IsActivationOutput(spec.kind, o), any_result && o == 0))
      return false;
  }
  return true;
}

}  // namespace

bool SupportsTypes(const OpSpec& spec, const Cpu&) {
  const bool is_product = IsFilterInput(spec.kind, 1);
  return FitTypes(spec, is_product);
}

bool SupportsTypesButResult(const OpSpec& spec, const Cpu&) { return FitTypes(spec, true); }

bool IsFp32(const OpSpec& spec, const Cpu&) {
  const auto fits = [](const TensorSpec& t) { return !t.present || t.dtype == DType::kF32; };
  return std::ranges::all_of(spec.inputs, fits) && std::ranges::all_of(spec.outputs, fits);
}

}  // namespace carole::onednn
