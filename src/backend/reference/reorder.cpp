// Copies: between plain layouts of one shape, and between shapes of one order of elements.
#include <algorithm>
#include <cstring>

#include "src/backend/reference/reference.h"

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

// Element is an unsigned integer as wide as the tensors' elements.
template <typename Element>
class Reorder : public ReferenceKernel {
 public:
  Reorder(const OpSpec& spec, int threads) : ReferenceKernel(spec, threads) {
    CAROLE_CHECK_EQ(in_shape(0), out_shape(0), "shape of a reorder");
    CAROLE_CHECK(spec.inputs[0].dtype == spec.outputs[0].dtype, "reorder from {} to {}",
                 Name(spec.inputs[0].dtype), Name(spec.outputs[0].dtype));
    input_layouts_ = {spec.inputs[0].layout};
    output_layouts_ = {spec.outputs[0].layout};
    PlanLoops(PlainStrides(in_shape(0), input_layouts_[0]),
              PlainStrides(out_shape(0), output_layouts_[0]));
  }

  void Run(const RunContext&) override {
    const Element* from = in<Element>(0);
    Element* to = out<Element>(0);
    ParallelFor(threads_, loops_[0].size * loops_[1].size, [&](int64_t i) {
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

  // One loop for each dimension, innermost the one whose elements are written side by side.
  void PlanLoops(const Shape& from, const Shape& to) {
    const int rank = in_shape(0).rank();
    for (int i = 0; i < rank; ++i) {
      loops_[kLoops - rank + i] = {in_shape(0)[i], from[i], to[i]};
    }
    std::stable_sort(loops_ + kLoops - rank, loops_ + kLoops,
                     [](const Loop& a, const Loop& b) { return a.to > b.to; });
  }

  void Copy(int depth, const Element* from, Element* to) const {
    const Loop& loop = loops_[depth];
    for (int64_t i = 0; i < loop.size; ++i) {
      if (depth == kLoops - 1) {
        to[i * loop.to] = from[i * loop.from];
      } else {
        Copy(depth + 1, from + i * loop.from, to + i * loop.to);
      }
    }
  }

  Loop loops_[kLoops];
};

}  // namespace

std::unique_ptr<Kernel> MakeReshape(const OpSpec& spec, int threads) {
  return std::make_unique<Reshape>(spec, threads);
}

std::unique_ptr<Kernel> MakeReorder(const OpSpec& spec, int threads) {
  switch (SizeOf(spec.inputs[0].dtype)) {
    case 8:
      return std::make_unique<Reorder<uint64_t>>(spec, threads);
    case 4:
      return std::make_unique<Reorder<uint32_t>>(spec, threads);
    case 2:
      return std::make_unique<Reorder<uint16_t>>(spec, threads);
    default:
      return std::make_unique<Reorder<uint8_t>>(spec, threads);
  }
}

}  // namespace carole::reference
