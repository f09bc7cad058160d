// Fake quantization and its gradient, in any layout.
//
// The range lies in device memory, since kernels measure it. If it is measured, two kernels come
// first: blocks write the extremes of their parts of x, and one block merges them and updates the
// range. Then each thread makes the QuantGrid of the range, and rounds its elements with the same
// bits as the reference backend.
#include "src/backend/cuda/quantization/floats.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/cuda/runtime/valid_rows.h"
#include "src/backend/ops/fake_quant.h"

namespace carole::cuda {
namespace {

constexpr auto kIn = kPosition<FakeQuantInputs>;
constexpr auto kBackIn = kPosition<FakeQuantBackwardInputs>;
using Range = FakeQuantAttributes::Range;

constexpr int kReadsInFlight = 4;

// The smallest and largest of 0 and other values. NaN has no effect.
struct Extremes {
  float smallest, largest;

  __device__ void Add(float low, float high) {
    smallest = low < smallest ? low : smallest;
    largest = high > largest ? high : largest;
  }
};

// Returns the extremes of all threads of the block to its first thread. All threads of the block
// must call this.
__device__ inline Extremes OfBlock(const Extremes& own) {
  __shared__ float smallest[kThreads], largest[kThreads];
  Extremes merged = own;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    smallest[threadIdx.x] = merged.smallest;
    largest[threadIdx.x] = merged.largest;
    __syncthreads();
    if (threadIdx.x < half) merged.Add(smallest[threadIdx.x + half], largest[threadIdx.x + half]);
    __syncthreads();
  }
  return merged;
}

// The rows of x that count.
struct CountedRows {
  int64_t rows, packs_per_row;
  const DeviceRunContext* run_context;  // null: all rows count

  __device__ int64_t Count() const {
    return run_context == nullptr ? rows : ValidRows(*run_context, rows);
  }
};

// Writes the extremes of each block's elements.
template <int N>
__global__ void __launch_bounds__(kThreads)
    ExtremesKernel(CountedRows counted, const float* x, Extremes* parts) {
  const int64_t packs = counted.Count() * counted.packs_per_row;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  Extremes own{0, 0};
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < packs;
       i += kReadsInFlight * step) {
    ReadAhead<kReadsInFlight>(
        i, packs, step, [&](int64_t pack) { return ReadPack<N>(x + pack * N); },
        [&](int64_t, const Pack<float, N>& read) {
          const Floats<N> values = ToFloats(read);
          for (int k = 0; k < N; ++k) own.Add(values[k], values[k]);
        });
  }
  const Extremes merged = OfBlock(own);
  if (threadIdx.x == 0) parts[blockIdx.x] = merged;
}

// The variables of a range.
struct RangeVariables {
  float *min, *max;
  // Null unless the range is a moving average.
  float *biased_min, *min_steps, *biased_max, *max_steps;

  __device__ void Update(const Extremes& of_batch) const {
    const bool averages = biased_min != nullptr;
    *min = averages ? UpdateQuantAverage(of_batch.smallest, *biased_min, *min_steps)
                    : of_batch.smallest;
    *max =
        averages ? UpdateQuantAverage(of_batch.largest, *biased_max, *max_steps) : of_batch.largest;
  }
};

// One block merges the extremes of all parts, and updates the range if a row counts.
__global__ void __launch_bounds__(kThreads)
    UpdateRangeKernel(CountedRows counted, const Extremes* parts, int64_t num_parts,
                      RangeVariables range) {
  Extremes own{0, 0};
  for (int64_t i = threadIdx.x; i < num_parts; i += kThreads)
    own.Add(parts[i].smallest, parts[i].largest);
  const Extremes merged = OfBlock(own);
  if (threadIdx.x == 0 && counted.Count() > 0) range.Update(merged);
}

// The scalars of an operation, as the last kernel has left them.
struct Scalars {
  const float *min, *max, *step, *l2_weight;  // step and l2_weight may be null
  double delay;
  float smallest_code, largest_code;
};

// Rounds elements and masks gradients. Each thread makes one from the scalars.
struct Quantizer {
  QuantGrid<float> grid;
  bool is_delayed;
  float l2_weight;

  __device__ explicit Quantizer(const Scalars& s)
      : grid(*s.min, *s.max, s.smallest_code, s.largest_code),
        is_delayed(s.step != nullptr && double{*s.step} < s.delay),
        l2_weight(s.l2_weight != nullptr ? *s.l2_weight : 0) {}

  __device__ float Round(float x) const { return is_delayed ? x : grid.Round(x); }
  __device__ float Mask(float dy, float x) const {
    if (!is_delayed && !grid.Contains(x)) return 0;
    return l2_weight == 0 ? dy : dy + l2_weight * Round(x);
  }
};

// Calls f.Write(quantizer, pack, f.Read(pack)) for each pack of elements.
template <typename F>
__global__ void __launch_bounds__(kThreads) QuantKernel(int64_t packs, Scalars scalars, F f) {
  const Quantizer quantizer(scalars);
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < packs;
       i += kReadsInFlight * step) {
    ReadAhead<kReadsInFlight>(
        i, packs, step, [&](int64_t pack) { return f.Read(pack); },
        [&](int64_t pack, const auto& read) { f.Write(quantizer, pack, read); });
  }
}

template <int N>
struct RoundElements {
  const float* x;
  float* y;

  __device__ Pack<float, N> Read(int64_t pack) const { return ReadPack<N>(x + pack * N); }
  __device__ void Write(const Quantizer& quantizer, int64_t pack,
                        const Pack<float, N>& read) const {
    Floats<N> values = ToFloats(read);
    for (int i = 0; i < N; ++i) values[i] = quantizer.Round(values[i]);
    Store<N>(y + pack * N, values);
  }
};

template <int N>
struct MaskGradients {
  const float *dy, *x;
  float* dx;

  struct Packs {
    Pack<float, N> dy, x;
  };
  __device__ Packs Read(int64_t pack) const {
    return {ReadPack<N>(dy + pack * N), ReadPack<N>(x + pack * N)};
  }
  __device__ void Write(const Quantizer& quantizer, int64_t pack, const Packs& read) const {
    Floats<N> gradients = ToFloats(read.dy);
    const Floats<N> values = ToFloats(read.x);
    for (int i = 0; i < N; ++i) gradients[i] = quantizer.Mask(gradients[i], values[i]);
    Store<N>(dx + pack * N, gradients);
  }
};

template <int N>
class FakeQuantKernel : public CudaKernel {
 public:
  FakeQuantKernel(const OpSpec& spec, const Device& device, int x)
      : CudaKernel(spec, device),
        a_(spec.attributes.as<FakeQuantAttributes>()),
        count_(spec.inputs[x].shape.size()) {
    const TensorSpec& values = spec.inputs[x];
    const Layout layout = LayoutOfFakeQuant(values);
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      if (spec.inputs[i].present && spec.inputs[i].shape == values.shape)
        input_layouts_[i] = layout;
    }
    output_layouts_[0] = layout;
  }
  int InPlaceInput(int) const override { return 0; }

 protected:
  // `Inputs` are the positions of the inputs.
  template <typename F, typename Inputs>
  void ForPacks(const Inputs& inputs, const F& f) const {
    const int64_t packs = count_ / N;
    if (packs == 0) return;
    const Scalars scalars{in<float>(inputs.min),
                          in<float>(inputs.max),
                          in<float>(inputs.step),
                          in<float>(inputs.l2_weight),
                          static_cast<double>(a_.delay),
                          static_cast<float>(a_.smallest_code()),
                          static_cast<float>(a_.largest_code())};
    Launch(device_.stream, GridFor(packs, kFullGrid), QuantKernel<F>, packs, scalars, f);
  }
  // At most `most` blocks for this number of packs.
  static dim3 GridFor(int64_t packs, int64_t most) {
    return dim3(static_cast<unsigned>(std::clamp<int64_t>(DivideUp(packs, kThreads), 1, most)));
  }

  const FakeQuantAttributes a_;
  const int64_t count_;
};

template <int N>
class FakeQuant : public FakeQuantKernel<N> {
 public:
  FakeQuant(const OpSpec& spec, const Device& device)
      : FakeQuantKernel<N>(spec, device, kIn.x), rows_(Rows(spec)) {
    if (this->a_.range == Range::kFixed) return;
    parts_ = this->GridFor(this->count_ / N, kMaxParts).x;
    this->workspace_bytes_ = sizeof(Extremes) * parts_;
  }

  // The number of neighboring elements that packs must divide: those that count.
  static int64_t NeighborsOf(const OpSpec& spec) {
    return spec.inputs[kIn.x].shape.size() / Rows(spec);
  }

  void Run(const RunContext&) override {
    if (this->a_.range != Range::kFixed) UpdateRange();
    this->ForPacks(kIn,
                   RoundElements<N>{this->template in<float>(kIn.x), this->template out<float>(0)});
  }

 private:
  // More parts would make their merger take longer.
  static constexpr int64_t kMaxParts = 1024;

  // The rows of which only valid ones count. If all of x counts, it is one row.
  static int64_t Rows(const OpSpec& spec) {
    const bool averages = spec.attributes.as<FakeQuantAttributes>().range == Range::kAverage;
    return averages ? spec.inputs[kIn.x].shape[0] : 1;
  }

  void UpdateRange() const {
    const bool averages = this->a_.range == Range::kAverage;
    const CountedRows counted{rows_, this->count_ / N / rows_,
                              averages ? this->device_.run_context : nullptr};
    const auto variable = [&](int input) { return this->template in<float>(input); };
    auto* parts = reinterpret_cast<Extremes*>(this->memory_.workspace);
    Launch(this->device_.stream, dim3(parts_), ExtremesKernel<N>, counted, variable(kIn.x), parts);
    Launch(
        this->device_.stream, dim3(1), UpdateRangeKernel, counted, parts, int64_t{parts_},
        RangeVariables{variable(kIn.min), variable(kIn.max), variable(kIn.biased_min),
                       variable(kIn.min_steps), variable(kIn.biased_max), variable(kIn.max_steps)});
  }

  const int64_t rows_;
  unsigned parts_ = 0;
};

template <int N>
class FakeQuantBackward : public FakeQuantKernel<N> {
 public:
  FakeQuantBackward(const OpSpec& spec, const Device& device)
      : FakeQuantKernel<N>(spec, device, kBackIn.x) {}

  void Run(const RunContext&) override {
    this->ForPacks(kBackIn, MaskGradients<N>{this->template in<float>(kBackIn.dy),
                                             this->template in<float>(kBackIn.x),
                                             this->template out<float>(0)});
  }
};

std::unique_ptr<Kernel> MakeFakeQuant(const OpSpec& spec, const Device& device) {
  return MakePackedFloats<FakeQuant>(spec, device, FakeQuant<1>::NeighborsOf(spec));
}
std::unique_ptr<Kernel> MakeFakeQuantBackward(const OpSpec& spec, const Device& device) {
  return MakePackedFloats<FakeQuantBackward>(spec, device, spec.inputs[kBackIn.x].shape.size());
}

constexpr KernelRow kRows[] = {
    {.kind = op::kFakeQuant, .make = MakeFakeQuant, .supports = IsFp32},
    {.kind = op::kFakeQuantBackward, .make = MakeFakeQuantBackward, .supports = IsFp32},
};

}  // namespace

KernelRows FakeQuantKernels() { return kRows; }

}  // namespace carole::cuda
