// The filter gradient of depthwise convolutions with windows larger than 3x3. For these, oneDNN 3.2
// falls back to a matrix product for each channel, which is ten times slower and wants row-major
// order.
#include <algorithm>

#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/onednn/vector/vector.h"
#include "src/backend/ops/conv2d.h"

namespace carole::onednn {
namespace {

// x, dy -> dw (C,1,R,S), in TensorFlow's order (taps, channels) in memory.
template <typename T>
class DepthwiseBackwardFilter : public Kernel {
 public:
  DepthwiseBackwardFilter(const OpSpec& spec, int threads) : threads_(threads) {
    const Shape &x = spec.inputs[0].shape, &dy = spec.inputs[1].shape;
    Layout layout = KnownLayout(spec.inputs[0]);
    if (layout.is_plain()) layout = LayoutLike(x, KnownLayout(spec.inputs[1]));
    input_layouts_ = {layout, LayoutLike(dy, layout)};
    if (input_layouts_[1].is_plain()) input_layouts_[0] = Layout::Nhwc();
    output_layouts_ = {Layout::Filter(), Layout::RowMajor()};
    x_ = Planes(x, input_layouts_[0]);
    dy_ = Planes(dy, input_layouts_[1]);
    const auto& a = spec.attributes.as<Conv2dAttributes>();
    const Shape& w = spec.outputs[0].shape;
    window_ = {.height = x[2],
               .width = x[3],
               .p = dy[2],
               .q = dy[3],
               .r = w[2],
               .s = w[3],
               .stride_h = a.stride_h,
               .stride_w = a.stride_w,
               .top = a.padding.top,
               .left = a.padding.left,
               .lanes = x_.lanes};
    workspace_bytes_ = sizeof(float) * static_cast<size_t>(x_.images * x_.blocks * PartSize());
  }

  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    const T *x = memory_.inputs[0].as<T>(), *dy = memory_.inputs[1].as<T>();
    auto* parts = reinterpret_cast<float*>(memory_.workspace);
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t i = 0; i < x_.images * x_.blocks; ++i) {
      Vectors<T>().depthwise_filter(x + x_.Offset(0, i), dy + dy_.Offset(0, i), window_,
                                    parts + i * PartSize());
    }
    SumOverImages(parts);
  }

 private:
  int64_t PartSize() const { return window_.r * window_.s * x_.lanes; }

  // Sums in the order of the images, so that the number of threads changes nothing.
  void SumOverImages(const float* parts) const {
    float* dw = memory_.outputs[0].as<float>();
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t c = 0; c < x_.channels; ++c) {
      const float* part = parts + c / x_.lanes * PartSize() + c % x_.lanes;
      for (int64_t tap = 0; tap < window_.r * window_.s; ++tap) {
        double sum = 0;
        for (int64_t n = 0; n < x_.images; ++n)
          sum += part[n * x_.blocks * PartSize() + tap * x_.lanes];
        dw[tap * x_.channels + c] = static_cast<float>(sum);
      }
    }
  }

  int threads_;
  Planes x_, dy_;
  DepthwiseWindow window_;
  KernelMemory memory_;
};

bool IsLargeDepthwise(const OpSpec& spec, const Cpu& cpu) {
  const auto& a = spec.attributes.as<Conv2dAttributes>();
  const Shape& w = spec.outputs[0].shape;
  const bool depthwise = a.groups == w[0] && w[1] == 1 && spec.inputs[0].shape[1] == w[0];
  return SupportsTypes(spec, cpu) && !HasReluYInput(spec) && depthwise && a.dilation == 1 &&
         !spec.outputs[1].present && std::max(w[2], w[3]) > 3;
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2dBackwardFilter,
     .make = MakeTyped<DepthwiseBackwardFilter>,
     .supports = IsLargeDepthwise,
     .priority = 1},
};

}  // namespace

KernelRows DepthwiseKernels() { return kRows; }

}  // namespace carole::onednn
