// Copies: Reorder changes layout or type and keeps the shape. Reshape changes the shape and keeps
// the order of the elements.
#include <algorithm>
#include <cstring>

#include "src/backend/ops/copies.h"
#include "src/backend/reference/reference.h"
#include "src/core/float16.h"

namespace carole::reference {
namespace {

class Reshape : public ElementwiseKernel {
 public:
  Reshape(const OpSpec& spec, int threads) : ElementwiseKernel(spec, threads) {
    CAROLE_CHECK_EQ(in_shape(0).size(), out_shape(0).size(), "elements of a reshape of {}",
                    in_shape(0).ToString());
  }

  void Run(const RunContext&) override {
    const Tensor& x = memory_.inputs[0];
    const Tensor& y = memory_.outputs[0];
    if (x.data != y.data) std::memcpy(y.data, x.data, x.bytes());
  }
};

template <typename From, typename To>
class Reorder : public ReferenceKernel {
 public:
  Reorder(const OpSpec& spec, int threads) : ReferenceKernel(spec, threads) {
    CAROLE_CHECK_EQ(in_shape(0), out_shape(0), "shape of a reorder");
    input_layouts_ = {spec.inputs[0].layout};
    output_layouts_ = {spec.outputs[0].layout};
    PlanLoops(PlainStrides(in_shape(0), input_layouts_[0]),
              PlainStrides(out_shape(0), output_layouts_[0]));
  }

  void Run(const RunContext&) override {
    const From* from = in<From>(0);
    To* to = out<To>(0);
    ForIndices(threads_, loops_[0].size * loops_[1].size, [&](int64_t i) {
      const int64_t outer = i / loops_[1].size, inner = i % loops_[1].size;
      Copy(2, from + outer * loops_[0].from + inner * loops_[1].from,
           to + outer * loops_[0].to + inner * loops_[1].to);
    });
  }

 private:
  static constexpr int kLoops = Shape::kMaxRank;
  struct Loop {
    int64_t size = 1, from = 0, to = 0;
  };

  // Plans one loop for each dimension. The innermost one is the dimension whose elements are
  // adjacent in the output.
  void PlanLoops(const Shape& from, const Shape& to) {
    const int rank = in_shape(0).rank();
    for (int i = 0; i < rank; ++i) {
      loops_[kLoops - rank + i] = {in_shape(0)[i], from[i], to[i]};
    }
    std::stable_sort(loops_ + kLoops - rank, loops_ + kLoops,
                     [](const Loop& a, const Loop& b) { return a.to > b.to; });
  }

  void Copy(int depth, const From* from, To* to) const {
    const Loop& loop = loops_[depth];
    for (int64_t i = 0; i < loop.size; ++i) {
      if (depth == kLoops - 1) {
        to[i * loop.to] = static_cast<To>(from[i * loop.from]);
      } else {
        Copy(depth + 1, from + i * loop.from, to + i * loop.to);
      }
    }
  }

  Loop loops_[kLoops];
};

// Copies elements without conversion. An unsigned integer of the same size stands for each type.
std::unique_ptr<Kernel> MakeCopy(const OpSpec& spec, int threads) {
  switch (SizeOf(spec.inputs[0].dtype)) {
    case 8:
      return std::make_unique<Reorder<uint64_t, uint64_t>>(spec, threads);
    case 4:
      return std::make_unique<Reorder<uint32_t, uint32_t>>(spec, threads);
    case 2:
      return std::make_unique<Reorder<uint16_t, uint16_t>>(spec, threads);
    default:
      return std::make_unique<Reorder<uint8_t, uint8_t>>(spec, threads);
  }
}

bool IsPlainReorder(const OpSpec& spec, int) {
  return spec.inputs[0].layout.is_plain() && spec.outputs[0].layout.is_plain();
}

std::unique_ptr<Kernel> MakeReshape(const OpSpec& spec, int threads) {
  return std::make_unique<Reshape>(spec, threads);
}

std::unique_ptr<Kernel> MakeReorder(const OpSpec& spec, int threads) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  if (from == to) return MakeCopy(spec, threads);
  if (from == DType::kF32 && to == DType::kBF16)
    return std::make_unique<Reorder<float, Bf16>>(spec, threads);
  if (from == DType::kBF16 && to == DType::kF32)
    return std::make_unique<Reorder<Bf16, float>>(spec, threads);
  if (from == DType::kF32 && to == DType::kF16)
    return std::make_unique<Reorder<float, Fp16>>(spec, threads);
  CAROLE_CHECK(from == DType::kF16 && to == DType::kF32, "reorder from {} to {}", Name(from),
               Name(to));
  return std::make_unique<Reorder<Fp16, float>>(spec, threads);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kReshape, .make = MakeReshape},
    {.kind = op::kReorder, .make = MakeReorder, .supports = IsPlainReorder},
};

}  // namespace

KernelRows ReorderKernels() { return kRows; }

}  // namespace carole::reference
