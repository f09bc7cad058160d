// Multiplication by one factor for each channel of each image (squeeze-excite), in the layout of
// the activation. The factors have one pixel, so they are plain.
#include "src/backend/ops/scale_channels.h"

#include <algorithm>

#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/onednn/vector/vector.h"

namespace carole::onednn {
namespace {

// Forward: x, scale -> y. Backward: dy, x, scale -> [dx], [dscale]. The first output may overwrite
// the first input.
template <typename T>
class ScaleChannels : public Kernel {
 public:
  ScaleChannels(const OpSpec& spec, int threads)
      : backward_(spec.kind == op::kScaleChannelsBackward), threads_(threads) {
    Layout layout = KnownLayout(spec.inputs[0]);
    if (backward_ && layout.is_plain()) layout = KnownLayout(spec.inputs[1]);
    grid_ = Planes(spec.inputs[0].shape, layout);
    input_layouts_.assign(spec.inputs.size(), layout);
    input_layouts_.back() = Layout::Nhwc();
    output_layouts_.assign(spec.outputs.size(), layout);
    if (backward_) output_layouts_[1] = Layout::Nhwc();
    // The workspace holds a row of zeros, then kArrays rows for the factors and sums of each plane.
    workspace_bytes_ =
        sizeof(float) *
        static_cast<size_t>(grid_.lanes * (1 + kArrays * grid_.images * grid_.blocks));
  }

  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    auto* zeros = reinterpret_cast<float*>(memory_.workspace);
    std::fill_n(zeros, grid_.lanes, 0.f);
    const int64_t planes = grid_.images * grid_.blocks;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t i = 0; i < planes; ++i) {
      float* scratch = zeros + grid_.lanes * (1 + kArrays * i);
      if (backward_ && memory_.outputs[1].data != nullptr) Sum(i, zeros, scratch);
      if (memory_.outputs[0].data != nullptr) Multiply(i, zeros, scratch);
    }
  }

 private:
  static constexpr int kArrays = 3;
  static constexpr int64_t kPiece = 512;  // pixels that are summed before their sum joins the total

  // The number of channels of a plane: its lanes without padding.
  int64_t ChannelsOf(int64_t plane) const {
    return std::min(grid_.lanes, grid_.channels - plane % grid_.blocks * grid_.lanes);
  }
  // The offset of a plane's channels in a tensor (N,C).
  int64_t ChannelOffset(int64_t plane) const {
    return plane / grid_.blocks * grid_.channels + plane % grid_.blocks * grid_.lanes;
  }

  void Multiply(int64_t plane, const float* zeros, float* factors) const {
    const T* scale = memory_.inputs.back().as<T>() + ChannelOffset(plane);
    std::fill(std::copy_n(scale, ChannelsOf(plane), factors), factors + grid_.lanes, 0.f);
    const int64_t at = plane * grid_.pixels * grid_.lanes;
    Vectors<T>().normalize(memory_.inputs[0].as<T>() + at, nullptr, memory_.outputs[0].as<T>() + at,
                           {grid_.pixels, grid_.lanes, grid_.lanes}, factors, zeros, false, 0);
  }

  // dscale = sum of dy * x, which is batch norm's sum_gx with mean 0.
  void Sum(int64_t plane, const float* zeros, float* scratch) const {
    float *unused = scratch, *part = scratch + grid_.lanes, *total = part + grid_.lanes;
    std::fill_n(total, grid_.lanes, 0.f);
    for (int64_t pixel = 0; pixel < grid_.pixels; pixel += kPiece) {
      const int64_t at = (plane * grid_.pixels + pixel) * grid_.lanes;
      Vectors<T>().backward_sums(memory_.inputs[0].as<T>() + at, grid_.lanes, nullptr,
                                 memory_.inputs[1].as<T>() + at, {}, zeros,
                                 {std::min(kPiece, grid_.pixels - pixel), grid_.lanes, grid_.lanes},
                                 unused, part, nullptr);
      Vectors<float>().add(total, part, total, grid_.lanes);
    }
    std::transform(total, total + ChannelsOf(plane),
                   memory_.outputs[1].as<T>() + ChannelOffset(plane),
                   [](float sum) { return static_cast<T>(sum); });
  }

  bool backward_;
  int threads_;
  Planes grid_;
  KernelMemory memory_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kScaleChannels, .make = MakeTyped<ScaleChannels>},
    {.kind = op::kScaleChannelsBackward, .make = MakeTyped<ScaleChannels>},
};

}  // namespace

KernelRows ScaleChannelsKernels() { return kRows; }

}  // namespace carole::onednn
