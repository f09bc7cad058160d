// Elementwise operations: activations, sums, scaling, and the normalization of pixels.
#include "src/backend/cuda/kernels/bias.h"
#include "src/backend/cuda/kernels/channel_sums.h"
#include "src/backend/cuda/kernels/map.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/ops/add.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/normalize.h"
#include "src/backend/ops/relu.h"

namespace carole::cuda {
namespace {

float Top(const OpSpec& spec) {
  return static_cast<float>(ReluUpperBound(spec.attributes.as<ReluAttributes>().ceiling));
}

struct Relu {
  float top;
  __device__ float operator()(float x, float) const { return Clamp(x, 0, top); }
};

struct ReluBackward {
  float top;
  __device__ float operator()(float dy, float y) const { return y > 0 && y < top ? dy : 0; }
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

// Masks the rows of a matrix by y of a ReLU, and sums them, for ChannelSums().
template <typename T, int N>
struct MaskedRows {
  static constexpr int kReadsInFlight = 4;
  const T *dy, *y;
  T* dx;
  int64_t rows, columns;
  ReluBackward mask;

  struct Packs {
    Pack<T, N> dy, y;
  };
  __device__ int64_t Pixels() const { return rows; }
  __device__ int64_t Column(int64_t column) const { return column; }
  __device__ Packs Read(int64_t column, int64_t row) const {
    const int64_t index = row * columns + column;
    return {ReadPack<N>(dy + index), ReadPack<N>(y + index)};
  }
  __device__ void Add(int64_t column, int64_t row, const Packs& read, Floats<N>* sums) const {
    Floats<N> values = ToFloats(read.dy);
    const Floats<N> results = ToFloats(read.y);
    for (int i = 0; i < N; ++i) {
      values[i] = mask(values[i], results[i]);
      sums[0][i] += values[i];
    }
    Store<N>(dx + row * columns + column, values);
  }
};

template <typename T, int N>
class ReluBackwardAndSums : public CudaKernel {
 public:
  ReluBackwardAndSums(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        matrix_{
            .rows = in_shape(0).size() / channels(), .columns = channels(), .mask = {Top(spec)}} {
    workspace_bytes_ = PartialSumsBytes<1, N>(matrix_.rows, channels());
  }
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  void Run(const RunContext&) override {
    matrix_.dy = in<T>(kPosition<ReluBackwardInputs>.dy);
    matrix_.y = in<T>(kPosition<ReluBackwardInputs>.y);
    matrix_.dx = out<T>(kPosition<ReluBackwardOutputs>.dx);
    ChannelSums<1, N>(device_.stream, matrix_.rows, channels(), memory_.workspace, matrix_,
                      WriteSum<float>{out<float>(kPosition<ReluBackwardOutputs>.db)});
  }

 private:
  int64_t channels() const { return out_shape(kPosition<ReluBackwardOutputs>.db)[0]; }

  MaskedRows<T, N> matrix_;
};

constexpr int kManyOperands = 8;

// y = sum of operands. There are kMaxOperands of them; if that is kManyOperands, there may be
// fewer.
template <typename T, int N, int kMaxOperands>
struct Sum {
  static constexpr int kReadsInFlight = 8 / kMaxOperands;
  const T* operands[kMaxOperands];
  int count = 0;
  T* y;

  struct Packs {
    Pack<T, N> packs[kMaxOperands];
  };
  __device__ bool Has(int operand) const { return kMaxOperands < kManyOperands || operand < count; }
  __device__ Packs Read(int64_t pack) const {
    Packs read{};
    // With a variable number of iterations, a thread would first copy the pointers to memory.
    for (int j = 0; j < kMaxOperands; ++j)
      if (Has(j)) read.packs[j] = ReadPack<N>(operands[j] + pack * N);
    return read;
  }
  __device__ void Write(int64_t pack, const Packs& read) const {
    Floats<N> sum = ToFloats(read.packs[0]);
    for (int j = 1; j < kMaxOperands; ++j) {
      const Floats<N> next = ToFloats(read.packs[j]);
      for (int i = 0; i < N; ++i) sum[i] = Has(j) ? sum[i] + next[i] : sum[i];
    }
    Store<N>(y + pack * N, sum);
  }
};

template <typename T, int N>
class Add : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  void Run(const RunContext&) override {
    switch (spec_.inputs.size()) {
      case 2:
        return Launches<2>();
      case 3:
        return Launches<3>();
      default:
        return Launches<kManyOperands>();
    }
  }

 private:
  // The first launch adds as many inputs as it can take. Each further one adds y and the next
  // inputs.
  template <int kMaxOperands>
  void Launches() const {
    for (size_t next = 0; next < spec_.inputs.size();) {
      Sum<T, N, kMaxOperands> sum{.y = out<T>(0)};
      if (next > 0) sum.operands[sum.count++] = sum.y;
      while (next < spec_.inputs.size() && sum.count < kMaxOperands)
        sum.operands[sum.count++] = in<T>(next++);
      ForEach(device_.stream, in_shape(0).size() / N, sum);
    }
  }
};

// y = (x - subtract[channel of x]) * multiply
template <typename T, int N>
struct NormalizePixels {
  const uint8_t* x;
  T* y;
  int64_t channels;
  NormalizeAttributes a;

  // Indexes with constants: with a variable index, a thread would first copy all of them to memory.
  __device__ float Subtracted(int64_t channel) const {
    return channel == 0 ? a.subtract[0] : channel == 1 ? a.subtract[1] : a.subtract[2];
  }
  __device__ void operator()(int64_t pack) const {
    Floats<N> values = Load<N>(x + pack * N);
    int64_t channel = pack * N % channels;
    for (int i = 0; i < N; ++i) {
      values[i] = (values[i] - Subtracted(channel)) * a.multiply;
      channel = channel + 1 < channels ? channel + 1 : 0;
    }
    Store<N>(y + pack * N, values);
  }
};

template <typename T, int N>
class Normalize : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;

  void Run(const RunContext&) override {
    ForEach(device_.stream, in_shape(0).size() / N,
            NormalizePixels<T, N>{in<uint8_t>(0), out<T>(0), in_shape(0)[1],
                                  spec_.attributes.as<NormalizeAttributes>()});
  }
};

float Factor(const OpSpec& spec) {
  return static_cast<float>(spec.attributes.as<ScaleAttributes>().factor);
}

std::unique_ptr<Kernel> MakeRelu(const OpSpec& spec, const Device& device) {
  return MakeMap(spec, device, Relu{Top(spec)});
}
std::unique_ptr<Kernel> MakeReluBackward(const OpSpec& spec, const Device& device) {
  if (IsPresent(spec.outputs, kPosition<ReluBackwardOutputs>.db))
    return MakePacked<ReluBackwardAndSums>(spec, device, spec.inputs[0].shape[1]);
  return MakeMap(spec, device, ReluBackward{Top(spec)});
}
template <typename F>
std::unique_ptr<Kernel> MakeHardActivation(const OpSpec& spec, const Device& device) {
  const auto& a = spec.attributes.as<HardActivationAttributes>();
  return MakeMap(spec, device, F{.swish = a.swish, .factor = static_cast<float>(a.factor())});
}
std::unique_ptr<Kernel> MakeScale(const OpSpec& spec, const Device& device) {
  return MakeMap(spec, device, Scale{Factor(spec)});
}
std::unique_ptr<Kernel> MakeScaledAdd(const OpSpec& spec, const Device& device) {
  return MakeMap(spec, device, ScaledAdd{Factor(spec)});
}
std::unique_ptr<Kernel> MakeAdd(const OpSpec& spec, const Device& device) {
  return MakePacked<Add>(spec, device, spec.inputs[0].shape.size());
}

bool SupportsNormalize(const OpSpec& spec, const Device&) {
  const DType to = spec.outputs[0].dtype;
  return spec.inputs[0].dtype == DType::kU8 && (to == DType::kF32 || IsNarrow(to));
}
std::unique_ptr<Kernel> MakeNormalize(const OpSpec& spec, const Device& device) {
  return WithPacks(spec.outputs[0].dtype, spec.inputs[0].shape.size(),
                   [&]<typename T, int N>() -> std::unique_ptr<Kernel> {
                     return std::make_unique<Normalize<T, N>>(spec, device);
                   });
}

constexpr KernelRow kRows[] = {
    {.kind = op::kRelu, .make = MakeRelu},
    {.kind = op::kReluBackward, .make = MakeReluBackward},
    {.kind = op::kHardActivation, .make = MakeHardActivation<HardActivation>},
    {.kind = op::kHardActivationBackward, .make = MakeHardActivation<HardActivationBackward>},
    {.kind = op::kAdd, .make = MakeAdd},
    {.kind = op::kScaledAdd, .make = MakeScaledAdd},
    {.kind = op::kScale, .make = MakeScale},
    {.kind = op::kNormalize, .make = MakeNormalize, .supports = SupportsNormalize},
};

}  // namespace

KernelRows ElementwiseKernels() { return kRows; }

void MaskGradient(cudaStream_t stream, DType type, void* dx, const void* y, int64_t rows,
                  int64_t columns, float* db, std::byte* workspace) {
  const ReluBackward mask{static_cast<float>(ReluUpperBound(0))};
  // Without sums, a pack may extend across rows.
  WithPacks(type, db == nullptr ? rows * columns : columns, [&]<typename T, int N>() {
    T* const to = static_cast<T*>(dx);
    const T* const results = static_cast<const T*>(y);
    if (db == nullptr)
      return ForEach(stream, rows * columns / N, Map<T, N, ReluBackward>{to, results, to, mask});
    const MaskedRows<T, N> matrix{to, results, to, rows, columns, mask};
    ChannelSums<1, N>(stream, rows, columns, workspace, matrix, WriteSum<float>{db});
  });
}

}  // namespace carole::cuda
