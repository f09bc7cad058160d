// Tests batch norm with the statistics of all ranks: kernels of the CUDA backend and NCCL's
// all-reduces between them, on emulated streams, which run work later than it is enqueued.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include "src/backend/cuda/runtime/graph_capture.h"
#include "src/backend/host/backend.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/emulated_device.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"

namespace carole::testing {
namespace {

// Captures each run of a kernel and replays it.
class CapturedKernel : public Kernel {
 public:
  CapturedKernel(std::unique_ptr<Kernel> inner, EmulatedStream& stream,
                 FullCommunicator& communicator)
      : inner_(std::move(inner)), stream_(stream), communicator_(communicator) {
    input_layouts_ = inner_->input_layouts();
    output_layouts_ = inner_->output_layouts();
    workspace_bytes_ = inner_->workspace_bytes();
  }
  void Bind(const KernelMemory& memory) override { inner_->Bind(memory); }
  void Run(const RunContext& context) override {
    graphs_.push_back(cuda::CaptureGraph(&stream_, [&] { inner_->Run(context); }));
    communicator_.Replay([&] { graphs_.back()->Replay(); }, {.what = "captured work"});
  }

 private:
  const std::unique_ptr<Kernel> inner_;
  EmulatedStream& stream_;
  FullCommunicator& communicator_;
  std::vector<std::unique_ptr<CapturedWork>> graphs_;
};

// The GPU of one rank: kernels run in its stream, and NCCL may access its memory.
class StreamBackend : public host::HostBackend {
 public:
  StreamBackend(EmulatedStream& stream, FullCommunicator& communicator, bool replays)
      : HostBackend(1),
        stream_(stream),
        communicator_(communicator),
        replays_(replays),
        kernels_(MakeEmulatedCudaBackend({.stream = &stream})) {}

  std::string_view name() const override { return "stream"; }
  bool Supports(const OpSpec& spec) const override { return kernels_->Supports(spec); }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    auto kernel = kernels_->MakeKernel(spec);
    if (!replays_) return kernel;
    return std::make_unique<CapturedKernel>(std::move(kernel), stream_, communicator_);
  }
  DeviceMemory AllocateShared(size_t bytes) const override {
    const DeviceMemory memory = kernels_->Allocate(bytes);
    DeviceRanges().Add(memory.get(), bytes);
    return {memory.get(), [memory](std::byte*) { DeviceRanges().Remove(memory.get()); }};
  }
  void BeginRun(const RunContext& context) const override { kernels_->BeginRun(context); }
  void Synchronize() const override { stream_.Wait(); }

 private:
  EmulatedStream& stream_;
  FullCommunicator& communicator_;
  const bool replays_;
  const std::unique_ptr<Backend> kernels_;
};

constexpr int64_t kRows = 2, kChannels = 6;  // rows of each rank
constexpr int64_t kPixels = 3 * 2;           // pixels of an image
constexpr int64_t kRowElements = kPixels * kChannels;
constexpr BatchNormAttributes kAttributes{.decay = 0.9, .relu = true};

BatchNormSizes Sizes(int64_t rows) {
  return {.x = {rows, kChannels, 3, 2}, .attributes = kAttributes};
}

Elements PartOfRank(const Elements& whole, int rank) {
  const auto begin = whole.begin() + rank * kRows * kRowElements;
  return {begin, begin + kRows * kRowElements};
}

// The outputs of forward and backward.
struct Norm {
  Elements y, mean, rstd, moving_mean, moving_variance, dx, dgamma, dbeta;
};

Norm RunNorm(const Backend& backend, const RunContext& context, int64_t rows, const Elements& x,
             const Elements& dy) {
  const Elements gamma = RandomElements(kChannels, 3), beta = RandomElements(kChannels, 4);
  const Elements zeros(kChannels, 0), ones(kChannels, 1);
  std::vector<Elements> state;
  const auto forward = RunPlain(backend, BatchNormSpec(Sizes(rows)),
                                {x, gamma, beta, {}, zeros, ones}, context, &state);
  const auto backward = RunPlain(backend, BatchNormBackwardSpec(Sizes(rows)),
                                 {dy, x, {}, gamma, beta, forward[1], forward[2], {}, {}}, context);
  return {forward[0], forward[1],  forward[2],  state[4],
          state[5],   backward[0], backward[1], backward[2]};
}

// Expects that `size` ranks compute what one rank does with the batch of all of them. The last rank
// has `num_invalid` invalid rows.
void ExpectSameAsOneRank(int size, int64_t num_invalid, bool replays) {
  const int64_t rows = size * kRows;
  Elements x = RandomElements(rows * kRowElements, 1);
  for (double& value : x) value += 5;  // so that means are far from 0
  const Elements dy = RandomElements(rows * kRowElements, 2);
  const Norm whole =
      RunNorm(*MakeReferenceBackend(1), {.valid_rows = rows - num_invalid}, rows, x, dy);
  std::vector<Norm> parts(static_cast<size_t>(size));
  RunRanks(size, [&](FullCommunicator& c) {
    EmulatedDevice device(c, 1);
    const StreamBackend backend(*device.stream(), c, replays);
    const UseMemoryOf memory(backend);
    const int64_t valid = c.rank() + 1 < size ? kRows : kRows - num_invalid;
    const RunContext context{
        .valid_rows = valid > 0 ? valid : RunContext::kNoRows,
        .sum_over_ranks = [&c](std::span<double> v) { c.AllReduce(v, {.what = "batch norm"}); }};
    parts[c.rank()] =
        RunNorm(backend, context, kRows, PartOfRank(x, c.rank()), PartOfRank(dy, c.rank()));
  });
  const auto near = [](const Elements& want) {
    return ::testing::Pointwise(::testing::DoubleNear(3e-6), want);
  };
  Elements dgamma(kChannels), dbeta(kChannels);
  for (int rank = 0; rank < size; ++rank) {
    const Norm& part = parts[rank];
    EXPECT_THAT(part.y, near(PartOfRank(whole.y, rank))) << rank;
    EXPECT_THAT(part.dx, near(PartOfRank(whole.dx, rank))) << rank;
    EXPECT_THAT(part.mean, near(whole.mean));
    EXPECT_THAT(part.rstd, near(whole.rstd));
    EXPECT_THAT(part.moving_mean, near(whole.moving_mean));
    EXPECT_THAT(part.moving_variance, near(whole.moving_variance));
    EXPECT_EQ(part.moving_variance, parts[0].moving_variance);
    for (int64_t i = 0; i < kChannels; ++i) {
      dgamma[i] += part.dgamma[i];
      dbeta[i] += part.dbeta[i];
    }
  }
  EXPECT_THAT(dgamma, near(whole.dgamma));
  EXPECT_THAT(dbeta, near(whole.dbeta));
}

TEST(SyncBatchNorm, RanksTogetherComputeWhatOneRankDoes) {
  for (const int size : {2, 3}) ExpectSameAsOneRank(size, 0, false);
}

TEST(SyncBatchNorm, InvalidRowsDoNotCount) {
  ExpectSameAsOneRank(2, 1, false);
  ExpectSameAsOneRank(2, kRows, false);  // no row of the last rank is valid
}

TEST(SyncBatchNorm, ReplayedKernelsComputeTheSame) {
  ExpectSameAsOneRank(2, 0, true);
  ExpectSameAsOneRank(3, 1, true);
}

}  // namespace
}  // namespace carole::testing
