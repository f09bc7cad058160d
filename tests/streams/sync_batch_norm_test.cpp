// Batch norm over the rows of all ranks: the CUDA backend's kernels and NCCL's sums between them,
// on emulated streams that work later than they are asked to.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include "src/backend/cuda/runtime/recording.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/emulated_device.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"

namespace carole::testing {
namespace {

// Records each run and replays it.
class ReplayedKernel : public Kernel {
 public:
  ReplayedKernel(std::unique_ptr<Kernel> inner, EmulatedStream& stream, Communicator& communicator)
      : inner_(std::move(inner)), stream_(stream), communicator_(communicator) {
    input_layouts_ = inner_->input_layouts();
    output_layouts_ = inner_->output_layouts();
    workspace_bytes_ = inner_->workspace_bytes();
  }
  void Bind(const KernelMemory& memory) override { inner_->Bind(memory); }
  void Run(const RunContext& context) override {
    recordings_.push_back(cuda::RecordGraph(&stream_, [&] { inner_->Run(context); }));
    communicator_.Replay([&] { recordings_.back()->Replay(); }, {.what = "recorded"});
  }

 private:
  const std::unique_ptr<Kernel> inner_;
  EmulatedStream& stream_;
  Communicator& communicator_;
  std::vector<std::unique_ptr<Recording>> recordings_;
};

// A rank's GPU: own kernels in its stream, memory that NCCL sums.
class StreamBackend : public Backend {
 public:
  StreamBackend(EmulatedStream& stream, Communicator& communicator, bool replays)
      : stream_(stream),
        communicator_(communicator),
        replays_(replays),
        kernels_(MakeEmulatedCudaBackend({.stream = &stream})) {}

  std::string_view name() const override { return "stream"; }
  int threads() const override { return 1; }
  bool Supports(const OpSpec& spec) const override { return kernels_->Supports(spec); }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    auto kernel = kernels_->MakeKernel(spec);
    if (!replays_) return kernel;
    return std::make_unique<ReplayedKernel>(std::move(kernel), stream_, communicator_);
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
  Communicator& communicator_;
  const bool replays_;
  const std::unique_ptr<Backend> kernels_;
};

constexpr int64_t kRows = 2, kChannels = 6;  // of each rank
constexpr int64_t kPixels = 3 * 2;           // of an image
constexpr int64_t kRowElements = kPixels * kChannels;
constexpr BatchNormAttributes kAttributes{.decay = 0.9, .relu = true};

BatchNormSizes Sizes(int64_t rows) {
  return {.x = {rows, kChannels, 3, 2}, .attributes = kAttributes};
}

Elements Part(const Elements& whole, int rank) {
  const auto begin = whole.begin() + rank * kRows * kRowElements;
  return {begin, begin + kRows * kRowElements};
}

// Outputs of both directions for a batch of which the first rows count.
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

// The last rank has `spared` rows that do not count.
void ExpectAsOneRank(int size, int64_t spared, bool replays) {
  const int64_t rows = size * kRows;
  Elements x = RandomElements(rows * kRowElements, 1);
  for (double& value : x) value += 5;  // means far from 0
  const Elements dy = RandomElements(rows * kRowElements, 2);
  const Norm whole = RunNorm(*MakeReferenceBackend(1), {.valid_rows = rows - spared}, rows, x, dy);
  std::vector<Norm> parts(static_cast<size_t>(size));
  RunRanks(size, [&](Communicator& c) {
    EmulatedDevice device(c, 1);
    const StreamBackend backend(*device.stream(), c, replays);
    const UseMemoryOf memory(backend);
    const int64_t valid = c.rank() + 1 < size ? kRows : kRows - spared;
    const RunContext context{
        .valid_rows = valid > 0 ? valid : RunContext::kNoRows,
        .sum_over_ranks = [&c](std::span<double> v) { c.AllReduce(v, {.what = "batch norm"}); }};
    parts[c.rank()] = RunNorm(backend, context, kRows, Part(x, c.rank()), Part(dy, c.rank()));
  });
  const auto near = [](const Elements& want) {
    return ::testing::Pointwise(::testing::DoubleNear(3e-6), want);
  };
  Elements dgamma(kChannels), dbeta(kChannels);
  for (int rank = 0; rank < size; ++rank) {
    const Norm& part = parts[rank];
    EXPECT_THAT(part.y, near(Part(whole.y, rank))) << rank;
    EXPECT_THAT(part.dx, near(Part(whole.dx, rank))) << rank;
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

TEST(SyncBatchNorm, RanksTogetherDoWhatOneDoes) {
  for (const int size : {2, 3}) ExpectAsOneRank(size, 0, false);
}

TEST(SyncBatchNorm, RowsThatDoNotCountHaveNoPart) {
  ExpectAsOneRank(2, 1, false);
  ExpectAsOneRank(2, kRows, false);  // none of the last rank's counts
}

TEST(SyncBatchNorm, SoItIsWhenReplayed) {
  ExpectAsOneRank(2, 0, true);
  ExpectAsOneRank(3, 1, true);
}

}  // namespace
}  // namespace carole::testing
