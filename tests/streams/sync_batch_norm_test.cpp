// Tests batch norm, also folded, with the statistics of all ranks: kernels of the CUDA backend and
// NCCL's all-reduces between them, on emulated streams, which run work later than it is enqueued.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include "src/backend/cuda/runtime/graph_capture.h"
#include "src/backend/host/backend.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/emulated_device.h"
#include "tests/support/norm_of_ranks.h"
#include "tests/support/op_runner.h"

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

constexpr int64_t kRows = 2;  // of each rank

// Expects that `size` ranks compute what one rank does with the batch of all of them. The last rank
// has `num_invalid` invalid rows.
void ExpectSameAsOneRank(int size, int64_t num_invalid, bool replays) {
  for (const RunNormFunction run : {RunBatchNorm, RunFoldedBatchNorm}) {
    const int64_t rows = size * kRows;
    Elements x = RandomElements(rows * kNormRowElements, 1);
    for (double& value : x) value += 5;  // so that means are far from 0
    const Elements dy = RandomElements(rows * kNormRowElements, 2);
    const Norm whole =
        run(*MakeReferenceBackend(1), {.valid_rows = rows - num_invalid}, rows, x, dy);
    std::vector<Norm> parts(static_cast<size_t>(size));
    RunRanks(size, [&](FullCommunicator& c) {
      EmulatedDevice device(c, 1);
      const StreamBackend backend(*device.stream(), c, replays);
      const UseMemoryOf memory(backend);
      const int64_t valid = c.rank() + 1 < size ? kRows : kRows - num_invalid;
      const RunContext context{.valid_rows = valid > 0 ? valid : RunContext::kNoRows,
                               .sum_over_ranks = [&c](std::span<double> v) {
                                 c.AllReduce(v, {.what = "batch norm", .is_urgent = true});
                               }};
      parts[c.rank()] = run(backend, context, kRows, PartOfRank(x, c.rank(), kRows),
                            PartOfRank(dy, c.rank(), kRows));
    });
    ExpectSameNorm(parts, whole, kRows);
  }
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
