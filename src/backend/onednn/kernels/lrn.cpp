// Local response normalization in NHWC, where the channels of a pixel are adjacent. oneDNN's own
// kernel is not used. It needs a workspace from forward to backward, and blocked layouts, from
// which only nets without LRN profit.
#include "src/backend/ops/lrn.h"

#include "src/backend/onednn/kernels/onednn.h"
#include "src/backend/onednn/vector/vector.h"

namespace carole::onednn {
namespace {

template <typename T>
class Lrn : public Kernel {
 public:
  Lrn(const OpSpec& spec, int threads)
      : attributes_(spec.attributes.as<LrnAttributes>()),
        backward_(spec.kind == op::kLrnBackward),
        threads_(threads) {
    input_layouts_.assign(spec.inputs.size(), Layout::Nhwc());
    output_layouts_ = {Layout::Nhwc()};
  }

  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    const Shape& shape = memory_.inputs[0].shape;
    const int64_t rows = shape[0] * shape[2], channels = shape[1];
    const Plane plane{shape[3], channels, channels};
    const auto alpha = static_cast<float>(attributes_.alpha),
               beta = static_cast<float>(attributes_.beta),
               bias = static_cast<float>(attributes_.bias);
    const T* first = memory_.inputs[0].as<T>();
    T* out = memory_.outputs[0].as<T>();
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * shape[3] * channels;
      if (backward_) {
        Vectors<T>().lrn_backward(first + at, memory_.inputs[1].as<T>() + at, out + at, plane,
                                  attributes_.radius, bias, alpha, beta);
      } else {
        Vectors<T>().lrn(first + at, out + at, plane, attributes_.radius, bias, alpha, beta);
      }
    }
  }

 private:
  LrnAttributes attributes_;
  bool backward_;
  int threads_;
  KernelMemory memory_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kLrn, .make = MakeTyped<Lrn>},
    {.kind = op::kLrnBackward, .make = MakeTyped<Lrn>},
};

}  // namespace

KernelRows LrnKernels() { return kRows; }

}  // namespace carole::onednn
