// Activations, sums and scalings, element by element.
#include <limits>

#include "src/backend/cuda/cuda.h"
#include "src/backend/cuda/launch.h"

namespace carole::cuda {
namespace {

// Comparisons are written so that NaN stays NaN.
__device__ float Clamp(float x, float low, float high) {
  const float floored = x < low ? low : x;
  return high < floored ? high : floored;
}

struct Relu {
  float ceiling;
  __device__ float operator()(float x, float) const { return Clamp(x, 0, ceiling); }
};

struct ReluBackward {
  float ceiling;
  __device__ float operator()(float dy, float y) const { return y > 0 && y < ceiling ? dy : 0; }
};

struct HardActivation {
  bool swish;
  float factor;
  __device__ float operator()(float x, float) const {
    const float gate = Clamp(x + 3, 0, 6);
    return (swish ? x * gate : gate) * factor;
  }
};

struct HardActivationBackward {
  bool swish;
  float factor;
  __device__ float operator()(float dy, float x) const {
    const float shifted = x + 3;
    const float slope = shifted > 0 && shifted < 6 ? 1 : 0;
    return dy * factor * (swish ? Clamp(shifted, 0, 6) + x * slope : slope);
  }
};

struct Scale {
  float factor;
  __device__ float operator()(float x, float) const { return factor * x; }
};

struct ScaledAdd {
  float factor;
  __device__ float operator()(float a, float b) const { return a + factor * b; }
};

// Some of the operands of a sum.
struct Operands {
  static constexpr int kMost = 8;
  const float* pointers[kMost];
  int count = 0;

  __device__ float Sum(int64_t i) const {
    float sum = pointers[0][i];
    for (int j = 1; j < count; ++j) sum += pointers[j][i];
    return sum;
  }
};

// y[i] = f(a[i], b[i]); functions of one operand get it twice.
template <typename F>
class Elementwise : public CudaKernel {
 public:
  Elementwise(const OpSpec& spec, const Device& device, F f) : CudaKernel(spec, device), f_(f) {}
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  void Run(const RunContext&) override {
    const float* a = in<float>(0);
    const float* b = spec_.inputs.size() > 1 ? in<float>(1) : a;
    float* y = out<float>(0);
    const F f = f_;
    ForEach(device_.stream, in_shape(0).size(),
            [=] __device__(int64_t i) { y[i] = f(a[i], b[i]); });
  }

 private:
  const F f_;
};

template <typename F>
std::unique_ptr<Kernel> Make(const OpSpec& spec, const Device& device, F f) {
  return std::make_unique<Elementwise<F>>(spec, device, f);
}

class Add : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  // As many inputs as one launch takes, then y and the next ones.
  void Run(const RunContext&) override {
    float* y = out<float>(0);
    for (size_t next = 0; next < spec_.inputs.size();) {
      Operands operands;
      if (next > 0) operands.pointers[operands.count++] = y;
      while (next < spec_.inputs.size() && operands.count < Operands::kMost)
        operands.pointers[operands.count++] = in<float>(next++);
      ForEach(device_.stream, in_shape(0).size(),
              [=] __device__(int64_t i) { y[i] = operands.Sum(i); });
    }
  }
};

float Ceiling(const OpSpec& spec) {
  const double ceiling = spec.attributes_as<ReluAttributes>().ceiling;
  return ceiling > 0 ? static_cast<float>(ceiling) : std::numeric_limits<float>::infinity();
}

float Factor(const OpSpec& spec) {
  return static_cast<float>(spec.attributes_as<ScaleAttributes>().factor);
}

template <typename F>
std::unique_ptr<Kernel> MakeActivation(const OpSpec& spec, const Device& device) {
  const auto& a = spec.attributes_as<ActivationAttributes>();
  return Make(spec, device,
              F{.swish = a.function == ActivationAttributes::Function::kHardSwish,
                .factor = static_cast<float>(a.factor())});
}

}  // namespace

std::unique_ptr<Kernel> MakeElementwise(const OpSpec& spec, const Device& device) {
  switch (spec.kind) {
    case OpKind::kRelu:
      return Make(spec, device, Relu{Ceiling(spec)});
    case OpKind::kReluBackward:
      return Make(spec, device, ReluBackward{Ceiling(spec)});
    case OpKind::kActivation:
      return MakeActivation<HardActivation>(spec, device);
    case OpKind::kActivationBackward:
      return MakeActivation<HardActivationBackward>(spec, device);
    case OpKind::kScale:
      return Make(spec, device, Scale{Factor(spec)});
    case OpKind::kScaledAdd:
      return Make(spec, device, ScaledAdd{Factor(spec)});
    default:
      return std::make_unique<Add>(spec, device);
  }
}

}  // namespace carole::cuda
