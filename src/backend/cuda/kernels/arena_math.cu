// Applies an optimizer (src/backend/update_rules.h) to all variables in one launch, and does other
// arithmetic on arenas. The numbers that decide whether and how a step is applied stay on the
// device, where the kernel reads them, so the host does not wait for them.
#include "src/backend/cuda/kernels/arena_math.h"
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/device_memory.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/optimizers/optimizers.h"
#include "src/backend/update_rules.h"
#include "src/core/check.h"

namespace carole::cuda {
namespace {

constexpr double kLargestDouble = 1.7976931348623157e308;
constexpr float kLargestFloat = 3.402823466e38f;

// The numbers of the current step, in device memory: each replay of a captured step reads its own.
struct StepScalars {
  UpdateSums sums;
  double scale;  // factor of the gradient
  UpdateCoefficients now;
};

// Returns, in thread 0, the sum of use(i, read(i)) over i in [begin, end). All threads of the block
// must call it. nvcc assumes that use() may write what is read next, so kReadsInFlight reads are
// issued before any of them is used.
template <int kReadsInFlight, typename Read, typename Use>
__device__ auto BlockSum(int64_t begin, int64_t end, const Read& read, const Use& use) {
  using Sum = decltype(use(begin, read(begin)));
  __shared__ Sum parts[kThreads];
  Sum sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kReadsInFlight * kThreads) {
    ReadAhead<kReadsInFlight>(i, end, kThreads, read,
                              [&](int64_t j, const auto& value) { sum += use(j, value); });
  }
  parts[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  __syncthreads();  // the next call may overwrite `parts`
  return parts[0];
}

// Returns, in thread 0, the sum of f(i) over i in [begin, end).
template <typename F>
__device__ auto BlockSum(int64_t begin, int64_t end, const F& f) {
  return BlockSum<4>(begin, end, f, [](int64_t, const auto& value) { return value; });
}

__device__ double Square(float x) { return static_cast<double>(x) * x; }

// Writes to sums[b] the sum of squares of the b-th UpdateBlock::kElements values.
__global__ void __launch_bounds__(kThreads)
    SquaresKernel(const float* values, int64_t count, double* sums) {
  const int64_t begin = int64_t{blockIdx.x} * UpdateBlock::kElements;
  const int64_t end = begin + UpdateBlock::kElements;
  const double sum =
      BlockSum(begin, end < count ? end : count, [=](int64_t i) { return Square(values[i]); });
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Adds the sums of squares of gradients to the step's. Runs as one block of threads.
__global__ void __launch_bounds__(kThreads)
    AddGradientsKernel(const double* sums, int64_t count, StepScalars* scalars) {
  const double sum = BlockSum(0, count, [=](int64_t i) { return sums[i]; });
  if (threadIdx.x != 0) return;
  scalars->sums.gradient_squares += sum;
  if (!(scalars->sums.gradient_squares <= kLargestDouble)) scalars->sums.is_finite = false;
}

__global__ void __launch_bounds__(kThreads)
    AddWeightsKernel(const double* sums, int64_t count, StepScalars* scalars) {
  if (!scalars->sums.is_finite) return;  // nothing was updated
  const double sum = BlockSum(0, count, [=](int64_t i) { return sums[i]; });
  if (threadIdx.x == 0) scalars->sums.weight_squares = sum;
}

// Sums of squares of an UpdateBlock: of the weights, and of the gradients or directions.
struct Squares {
  double weights, others;
};

struct RateTask {
  const float *weights, *gradients;
  float* slots[kMaxSlots];
  const UpdateBlock* blocks;
  const Segment* blocks_of_segments;
  const bool* decays;  // of segments
  Squares* squares;
  double* rates;
};

// Computes the sums of squares of each UpdateBlock that is in a segment, with one block of threads
// for each.
__global__ void __launch_bounds__(kThreads)
    BlockSquaresKernel(RateTask task, const StepScalars* scalars) {
  const UpdateBlock block = task.blocks[blockIdx.x];
  if (block.segment < 0 || !scalars->sums.is_finite) return;
  const Segment s = block.range;
  const double weights =
      BlockSum(s.begin, s.end, [=](int64_t i) { return Square(task.weights[i]); });
  const double gradients =
      BlockSum(s.begin, s.end, [=](int64_t i) { return Square(task.gradients[i]); });
  if (threadIdx.x == 0) task.squares[blockIdx.x] = {weights, gradients};
}

// The same with the squares of Rule::Direction(), which updates the slots of all blocks.
template <typename Rule>
__global__ void __launch_bounds__(kThreads)
    DirectionKernel(RateTask task, OptimizerOptions options, const StepScalars* scalars) {
  if (!scalars->sums.is_finite) return;
  const UpdateBlock block = task.blocks[blockIdx.x];
  const Segment s = block.range;
  UpdateCoefficients now = scalars->now;
  now.weight_decay = block.decays ? options.weight_decay : 0;
  const Rule rule(now, options);
  const float scale = static_cast<float>(scalars->scale);
  const double weights =
      BlockSum(s.begin, s.end, [=](int64_t i) { return Square(task.weights[i]); });
  const double directions = BlockSum(s.begin, s.end, [&](int64_t i) {
    return Square(update_rules::Direction(rule, task.weights[i], scale * task.gradients[i],
                                          task.slots[0], task.slots[1], i));
  });
  if (threadIdx.x == 0) task.squares[blockIdx.x] = {weights, directions};
}

// Computes the learning rate of each segment, with one block of threads for each.
template <typename Optimizer>
__global__ void __launch_bounds__(kThreads)
    RatesKernel(RateTask task, OptimizerOptions options, const StepScalars* scalars) {
  if (!scalars->sums.is_finite) return;
  const Segment s = task.blocks_of_segments[blockIdx.x];
  const double weight =
      BlockSum(s.begin, s.end, [=](int64_t b) { return task.squares[b].weights; });
  const double other = BlockSum(s.begin, s.end, [=](int64_t b) { return task.squares[b].others; });
  if (threadIdx.x != 0) return;
  const double scale = Optimizer::kTrustNorm == TrustNorm::kGradient ? scalars->scale : 1;
  task.rates[blockIdx.x] =
      scalars->now.learning_rate *
      Optimizer::TrustRatio(options, task.decays[blockIdx.x] ? options.weight_decay : 0,
                            sqrt(weight), scale * sqrt(other));
}

struct UpdateTask {
  float* weights;
  const float* gradients;
  float* slots[kMaxSlots];
  const UpdateBlock* blocks;
  bool copies_are_bf16;  // else fp16
  const double* rates;   // learning rates of segments; null: all have that of the step
  double* squares;       // sums of squares of the weights of each block; null without weight decay
};

// Updates the elements of a block, N neighbors at once. Returns, in thread 0, the sum of squares of
// the weights before the update.
template <int N, typename Rule>
__device__ double UpdatePacks(const UpdateTask& task, const UpdateBlock& block, const Rule& rule,
                              float scale, float decay) {
  struct Packs {
    Pack<float, N> weights, gradients, slots[kMaxSlots];
  };
  const auto read = [&](int64_t pack) {
    const int64_t i = pack * N;
    Packs packs{ReadPack<N>(task.weights + i), ReadPack<N>(task.gradients + i), {}};
    for (int s = 0; s < Rule::kSlots; ++s) packs.slots[s] = ReadPack<N>(task.slots[s] + i);
    return packs;
  };
  const auto update = [&](int64_t pack, const Packs& packs) {
    const int64_t i = pack * N;
    Floats<N> weights = ToFloats(packs.weights), slots[kMaxSlots];
    const Floats<N> gradients = ToFloats(packs.gradients);
    for (int s = 0; s < kMaxSlots; ++s) slots[s] = ToFloats(packs.slots[s]);
    double squares = 0;
    for (int k = 0; k < N; ++k) {
      float& weight = weights[k];
      squares += Square(weight);
      weight = update_rules::Apply(rule, weight, scale * gradients[k] + decay * weight,
                                   &slots[0][k], &slots[1][k], 0);
    }
    Store(task.weights + i, weights);
    for (int s = 0; s < Rule::kSlots; ++s) Store(task.slots[s] + i, slots[s]);
    if (block.copy == nullptr) return squares;
    const int64_t at = i - block.range.begin;
    if (task.copies_are_bf16)
      Store(reinterpret_cast<__nv_bfloat16*>(block.copy) + at, weights);
    else
      Store(reinterpret_cast<__half*>(block.copy) + at, weights);
    return squares;
  };
  return BlockSum<2>(block.range.begin / N, block.range.end / N, read, update);
}

// Updates all weights, with one block of threads for each UpdateBlock.
template <typename Optimizer, typename Rule>
__global__ void __launch_bounds__(kThreads)
    UpdateKernel(UpdateTask task, OptimizerOptions options, const StepScalars* scalars) {
  if (!scalars->sums.is_finite) return;
  const UpdateBlock block = task.blocks[blockIdx.x];
  UpdateCoefficients now = scalars->now;
  now.weight_decay = block.decays ? options.weight_decay : 0;
  if (block.segment >= 0 && task.rates != nullptr) now.learning_rate = task.rates[block.segment];
  const Rule rule(now, options);
  const float scale = static_cast<float>(scalars->scale);
  const float decay = Optimizer::kDecaysWeights ? 0 : static_cast<float>(now.weight_decay);
  constexpr int kNeighbors = kPack<float>;
  const bool in_packs =
      (block.range.begin | block.range.end) % kNeighbors == 0 &&
      reinterpret_cast<uintptr_t>(block.copy) % (kNeighbors * sizeof(__half)) == 0;
  const double squares = in_packs ? UpdatePacks<kNeighbors>(task, block, rule, scale, decay)
                                  : UpdatePacks<1>(task, block, rule, scale, decay);
  if (threadIdx.x == 0 && task.squares != nullptr)
    task.squares[blockIdx.x] = block.decays ? squares : 0;
}

// Writes parts (ranges, gridDim.x): each range is divided into gridDim.x parts, and the hash of a
// part is the sum of the hashes of its values.
__global__ void __launch_bounds__(kThreads)
    HashKernel(const uint32_t* values, const Segment* ranges, uint64_t* parts) {
  const Segment range = ranges[blockIdx.y];
  const int64_t share = DivideUp(range.end - range.begin, int64_t{gridDim.x});
  const int64_t begin = range.begin + share * blockIdx.x;
  const int64_t end = begin + share;
  const uint64_t sum = BlockSum(begin, end < range.end ? end : range.end,
                                [=](int64_t i) { return HashOfValue(values[i], i - range.begin); });
  if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

unsigned GridSize(size_t count) { return static_cast<unsigned>(count); }

// Returns, for each segment, the number of its first block and one past its last block.
std::vector<Segment> BlocksOfSegments(const std::vector<UpdateBlock>& blocks, size_t segments) {
  std::vector<Segment> block_ranges(segments);
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].segment < 0) continue;
    Segment& block_range = block_ranges[static_cast<size_t>(blocks[b].segment)];
    const auto number = static_cast<int64_t>(b);
    if (block_range.end == 0) block_range.begin = number;
    block_range.end = number + 1;
  }
  return block_ranges;
}

class CudaUpdater : public Updater {
 public:
  CudaUpdater(const UpdateJob& job, const Device& device)
      : job_(job), options_(*job.options), device_(device) {
    CAROLE_CHECK(job.dtype == DType::kF32, "weights of {}", Name(job.dtype));
    const std::vector<UpdateBlock> blocks = CutIntoBlocks(job);
    num_blocks_ = blocks.size();
    blocks_ = CopyToDevice(blocks, device.stream);
    const size_t most_parts = num_blocks_ + 1;
    parts_ = AllocateDevice(most_parts * sizeof(double), device.stream);
    VisitRule<float, update_rules::Build>(job.rule, [&]<typename Optimizer, typename Rule>() {
      trust_norm_ = Optimizer::kTrustNorm;
    });
    if (trust_norm_ != TrustNorm::kNone) {
      const size_t segments = job.segments.size();
      std::vector<uint8_t> decays;
      for (const VariableSegment& segment : job.segments) decays.push_back(segment.decays);
      decays_ = CopyToDevice(decays, device.stream);
      blocks_of_segments_ = CopyToDevice(BlocksOfSegments(blocks, segments), device.stream);
      squares_ = AllocateDevice(num_blocks_ * sizeof(Squares), device.stream);
      rates_ = AllocateDevice(segments * sizeof(double), device.stream);
    }
    scalars_ = AllocateDevice(sizeof(StepScalars), device.stream);
  }

  void BeginStep(const UpdateCoefficients& coefficients, bool continues) override {
    StepScalars* scalars = step_scalars();
    ForEach(device_.stream, 1, [=] __device__(int64_t) {
      const bool may_apply = !continues || scalars->sums.is_finite;
      *scalars = {.sums = {.is_finite = may_apply}, .scale = 1, .now = coefficients};
    });
  }

  void Inspect(Segment range) override {
    const int64_t count = range.end - range.begin;
    const int64_t parts = DivideUp(count, UpdateBlock::kElements);
    Launch(device_.stream, dim3(GridSize(parts)), SquaresKernel, gradients() + range.begin, count,
           doubles(parts_));
    Launch(device_.stream, dim3(1), AddGradientsKernel, doubles(parts_), parts, step_scalars());
  }

  void InspectLoss(const Tensor& loss) override {
    const float* value = loss.as<float>();
    StepScalars* scalars = step_scalars();
    ForEach(device_.stream, 1, [=] __device__(int64_t) {
      if (!(*value <= kLargestFloat && *value >= -kLargestFloat)) scalars->sums.is_finite = false;
    });
  }

  void Update() override {
    if (num_blocks_ == 0) return;
    StepScalars* scalars = step_scalars();
    const double clip_norm = job_.clip_norm;
    ForEach(device_.stream, 1, [=] __device__(int64_t) {
      const double scale = scalars->now.gradient_scale;
      scalars->scale = scale * update_rules::GradientScale(
                                   clip_norm, scale * scale * scalars->sums.gradient_squares);
    });
    VisitRule<float, update_rules::Build>(
        job_.rule, [&]<typename Optimizer, typename Rule>() { Apply<Optimizer, Rule>(); });
  }

  const UpdateSums* sums() const override { return &step_scalars()->sums; }

 private:
  static float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }
  static double* doubles(const DeviceMemory& memory) {
    return reinterpret_cast<double*>(memory.get());
  }
  const float* gradients() const { return reinterpret_cast<const float*>(job_.gradients); }
  const UpdateBlock* blocks() const { return reinterpret_cast<const UpdateBlock*>(blocks_.get()); }
  StepScalars* step_scalars() const { return reinterpret_cast<StepScalars*>(scalars_.get()); }

  template <typename Optimizer, typename Rule>
  void Apply() {
    StepScalars* scalars = step_scalars();
    if constexpr (Optimizer::kTrustNorm != TrustNorm::kNone) ComputeRates<Optimizer, Rule>();
    const bool decays_in_loss =
        !Optimizer::kDecaysWeights && options_.weight_decay != 0 && !job_.segments.empty();
    const UpdateTask task{
        .weights = floats(job_.weights),
        .gradients = gradients(),
        .slots = {floats(job_.slots[0]), floats(job_.slots[1])},
        .blocks = blocks(),
        .copies_are_bf16 = !job_.copies.empty() && job_.copies[0].dtype == DType::kBF16,
        .rates = trust_norm_ != TrustNorm::kNone ? doubles(rates_) : nullptr,
        .squares = decays_in_loss ? doubles(parts_) : nullptr};
    Launch(device_.stream, dim3(GridSize(num_blocks_)), UpdateKernel<Optimizer, Rule>, task,
           options_, scalars);
    if (decays_in_loss) {
      Launch(device_.stream, dim3(1), AddWeightsKernel, doubles(parts_),
             static_cast<int64_t>(num_blocks_), scalars);
    }
  }

  template <typename Optimizer, typename Rule>
  void ComputeRates() {
    const RateTask task{
        .weights = floats(job_.weights),
        .gradients = gradients(),
        .slots = {floats(job_.slots[0]), floats(job_.slots[1])},
        .blocks = blocks(),
        .blocks_of_segments = reinterpret_cast<const Segment*>(blocks_of_segments_.get()),
        .decays = reinterpret_cast<const bool*>(decays_.get()),
        .squares = reinterpret_cast<Squares*>(squares_.get()),
        .rates = doubles(rates_)};
    const dim3 num_blocks(GridSize(num_blocks_));
    if constexpr (Optimizer::kTrustNorm == TrustNorm::kUpdate) {
      Launch(device_.stream, num_blocks, DirectionKernel<Rule>, task, options_, step_scalars());
    } else {
      Launch(device_.stream, num_blocks, BlockSquaresKernel, task, step_scalars());
    }
    if (job_.segments.empty()) return;
    Launch(device_.stream, dim3(GridSize(job_.segments.size())), RatesKernel<Optimizer>, task,
           options_, step_scalars());
  }

  const UpdateJob job_;
  const OptimizerOptions options_;
  const Device& device_;
  TrustNorm trust_norm_ = TrustNorm::kNone;
  size_t num_blocks_ = 0;
  DeviceMemory blocks_, scalars_;
  DeviceMemory parts_;  // parts of sums over the whole arena
  // Only if there are trust ratios.
  DeviceMemory blocks_of_segments_, decays_, squares_, rates_;
};

uint32_t* Words(std::byte* memory) { return reinterpret_cast<uint32_t*>(memory); }
const uint32_t* Words(const std::byte* memory) { return reinterpret_cast<const uint32_t*>(memory); }
int64_t NumWords(size_t bytes) { return static_cast<int64_t>(bytes / sizeof(uint32_t)); }

void CheckIsFp32(DType dtype) {
  CAROLE_CHECK(dtype == DType::kF32, "an arena of {} on a GPU", Name(dtype));
}
float* Floats(DType dtype, std::byte* memory) {
  CheckIsFp32(dtype);
  return reinterpret_cast<float*>(memory);
}
const float* Floats(DType dtype, const std::byte* memory) {
  CheckIsFp32(dtype);
  return reinterpret_cast<const float*>(memory);
}

class CudaArenaMath : public ArenaMath {
 public:
  explicit CudaArenaMath(const Device& device) : device_(device) {}

  void Copy(std::byte* to, const std::byte* from, size_t bytes) const override {
    Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, device_.stream),
          "cudaMemcpyAsync");
  }
  void Swap(std::byte* a, std::byte* b, size_t bytes) const override {
    uint32_t *x = Words(a), *y = Words(b);
    ForEach(device_.stream, NumWords(bytes), [=] __device__(int64_t i) {
      const uint32_t kept = x[i];
      x[i] = y[i];
      y[i] = kept;
    });
  }
  void CopyUnless(const bool* flag, std::byte* to, const std::byte* from,
                  size_t bytes) const override {
    uint32_t* const out = Words(to);
    const uint32_t* const in = Words(from);
    ForEach(device_.stream, NumWords(bytes), [=] __device__(int64_t i) {
      if (!*flag) out[i] = in[i];
    });
  }
  void Add(DType dtype, std::byte* to, const std::byte* from, int64_t count) const override {
    float* const sum = Floats(dtype, to);
    const float* const addend = Floats(dtype, from);
    ForEach(device_.stream, count, [=] __device__(int64_t i) { sum[i] += addend[i]; });
  }
  void Scale(DType dtype, std::byte* to, int64_t count, double factor) const override {
    float* const values = Floats(dtype, to);
    const auto scale = static_cast<float>(factor);
    ForEach(device_.stream, count, [=] __device__(int64_t i) { values[i] *= scale; });
  }
  void UpdateAverage(const bool* flag, DType dtype, std::byte* to, const std::byte* from,
                     int64_t count, double one_minus_decay) const override {
    float* const average = Floats(dtype, to);
    const float* const values = Floats(dtype, from);
    const auto rest = static_cast<float>(one_minus_decay);
    ForEach(device_.stream, count, [=] __device__(int64_t i) {
      if (*flag) average[i] = update_rules::MovingAverage(average[i], values[i], rest);
    });
  }
  std::vector<uint64_t> Hashes(const float* arena,
                               const std::vector<Segment>& ranges) const override {
    constexpr size_t kParts = 64;
    std::vector<uint64_t> hashes(ranges.size()), parts(ranges.size() * kParts);
    if (ranges.empty()) return hashes;
    const size_t bytes = parts.size() * sizeof(uint64_t);
    const DeviceMemory block_ranges = CopyToDevice(ranges, device_.stream);
    const DeviceMemory sums = AllocateDevice(bytes, device_.stream);
    Launch(device_.stream, dim3(kParts, GridSize(ranges.size())), HashKernel,
           reinterpret_cast<const uint32_t*>(arena),
           reinterpret_cast<const Segment*>(block_ranges.get()),
           reinterpret_cast<uint64_t*>(sums.get()));
    Check(cudaMemcpyAsync(parts.data(), sums.get(), bytes, cudaMemcpyDeviceToHost, device_.stream),
          "cudaMemcpyAsync");
    Check(cudaStreamSynchronize(device_.stream), "cudaStreamSynchronize");
    for (size_t i = 0; i < parts.size(); ++i) hashes[i / kParts] += parts[i];
    return hashes;
  }
  std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job) const override {
    return std::make_unique<CudaUpdater>(job, device_);
  }

 private:
  const Device& device_;
};

}  // namespace

std::unique_ptr<ArenaMath> MakeArenaMath(const Device& device) {
  return std::make_unique<CudaArenaMath>(device);
}

}  // namespace carole::cuda
