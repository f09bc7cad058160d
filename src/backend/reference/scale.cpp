// Multiplication by a constant, and by one factor for each channel of each image (squeeze-excite).
#include "src/backend/ops/add.h"
#include "src/backend/ops/scale_channels.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

template <typename T>
class Scale : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T factor = static_cast<T>(spec_.attributes.as<ScaleAttributes>().factor);
    const T* x = in<T>(0);
    T* y = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) { y[i] = factor * x[i]; });
  }
};

template <typename T>
class ScaledAdd : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    const T factor = static_cast<T>(spec_.attributes.as<ScaleAttributes>().factor);
    const T *a = in<T>(0), *b = in<T>(1);
    T* y = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) { y[i] = a[i] + factor * b[i]; });
  }
};

// y = x * scale, with x and y (N,C,H,W), NHWC in memory, and scale (N,C,1,1).
template <typename T>
void MultiplyChannels(int threads, const T* x, const T* scale, T* y, const Shape& shape) {
  const int64_t channels = shape[1], pixels = shape[2] * shape[3];
  ForIndices(threads, shape[0] * pixels, [&](int64_t i) {
    const T* factors = scale + i / pixels * channels;
    for (int64_t c = 0; c < channels; ++c) y[i * channels + c] = x[i * channels + c] * factors[c];
  });
}

template <typename T>
class ScaleChannels : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    MultiplyChannels(threads_, in<T>(0), in<T>(1), out<T>(0), in_shape(0));
  }
};

// Computes dscale first, because dx may overwrite dy.
template <typename T>
class ScaleChannelsBackward : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    if (out<T>(1) != nullptr) Sum();
    if (out<T>(0) != nullptr)
      MultiplyChannels(threads_, in<T>(0), in<T>(2), out<T>(0), in_shape(0));
  }

 private:
  void Sum() {
    const T *dy = in<T>(0), *x = in<T>(1);
    T* dscale = out<T>(1);
    const int64_t channels = in_shape(0)[1], pixels = in_shape(0)[2] * in_shape(0)[3];
    ForIndices(threads_, in_shape(0)[0] * channels, [&](int64_t i) {
      const int64_t first = i / channels * pixels * channels + i % channels;
      double sum = 0;
      for (int64_t p = 0; p < pixels; ++p) {
        sum += static_cast<double>(dy[first + p * channels]) * x[first + p * channels];
      }
      dscale[i] = static_cast<T>(sum);
    });
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kScale, .make = MakeTyped<Scale>},
    {.kind = op::kScaledAdd, .make = MakeTyped<ScaledAdd>},
    {.kind = op::kScaleChannels, .make = MakeTyped<ScaleChannels>},
    {.kind = op::kScaleChannelsBackward, .make = MakeTyped<ScaleChannelsBackward>},
};

}  // namespace

KernelRows ScaleKernels() { return kRows; }

}  // namespace carole::reference
