// Adds zeros around an image, or removes pixels at its edges, in the image's own layout.
#include "src/backend/ops/pad2d.h"

#include <algorithm>
#include <cstring>

#include "src/backend/onednn/kernels/planes.h"

namespace carole::onednn {
namespace {

template <typename T>
class Pad2d : public Kernel {
 public:
  Pad2d(const OpSpec& spec, int threads)
      : pad_(spec.attributes.as<Pad2dAttributes>().padding), threads_(threads) {
    input_layouts_ = {KnownLayout(spec.inputs[0])};
    output_layouts_ = {LayoutLike(spec.outputs[0].shape, input_layouts_[0])};
    // An image of one pixel is plain even if the other one is blocked: then both are plain.
    if (output_layouts_[0].is_plain()) input_layouts_ = {Layout::Nhwc()};
    from_ = Planes(spec.inputs[0].shape, input_layouts_[0]);
    to_ = Planes(spec.outputs[0].shape, output_layouts_[0]);
  }

  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    const int64_t rows = memory_.outputs[0].shape[2];
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t i = 0; i < to_.images * to_.blocks * rows; ++i) MakeRow(i / rows, i % rows);
  }

 private:
  // Writes row p of a plane of the output: [zeros] pixels [zeros].
  void MakeRow(int64_t plane, int64_t p) const {
    const Shape &x = memory_.inputs[0].shape, &y = memory_.outputs[0].shape;
    const int64_t lanes = to_.lanes, h = p - pad_.top;
    T* to = memory_.outputs[0].as<T>() + (plane * to_.pixels + p * y[3]) * lanes;
    const int64_t begin = std::clamp<int64_t>(pad_.left, 0, y[3]);
    const int64_t end = h < 0 || h >= x[2] ? begin : std::clamp(pad_.left + x[3], begin, y[3]);
    const T* from =
        memory_.inputs[0].as<T>() + (plane * from_.pixels + h * x[3] + begin - pad_.left) * lanes;
    std::fill(to, to + begin * lanes, T{});
    if (end > begin)
      std::memcpy(to + begin * lanes, from, sizeof(T) * static_cast<size_t>((end - begin) * lanes));
    std::fill(to + end * lanes, to + y[3] * lanes, T{});
  }

  Padding pad_;
  int threads_;
  Planes from_, to_;
  KernelMemory memory_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kPad2d, .make = MakeTyped<Pad2d>},
};

}  // namespace

KernelRows Pad2dKernels() { return kRows; }

}  // namespace carole::onednn
