// Replays captured fake quantization of the CUDA backend on an emulated stream.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "src/backend/cuda/runtime/graph_capture.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/op_specs.h"

namespace carole::testing {
namespace {

constexpr auto kIn = kPosition<FakeQuantInputs>;

// The number of valid rows changes from step to step, so a replayed graph must read it again.
TEST(FakeQuantReplay, MeasuresTheValidRowsOfEachRun) {
  EmulatedStream stream;
  const auto backend = MakeEmulatedCudaBackend({.stream = &stream});
  const OpSpec spec =
      FakeQuantSpec(PlainSpec({3, 1}), {.range = FakeQuantAttributes::Range::kAverage});
  const auto kernel = backend->MakeKernel(spec);
  std::vector<DeviceMemory> owners;
  const auto allocate = [&](size_t bytes) {
    owners.push_back(backend->Allocate(bytes));
    return owners.back().get();
  };
  KernelMemory memory;
  for (const TensorSpec& t : spec.inputs) {
    memory.inputs.push_back(
        t.present ? Tensor{allocate(sizeof(float) * t.shape.size()), t.shape, t.dtype, t.layout}
                  : Tensor{});
  }
  memory.outputs = {memory.inputs[kIn.x]};
  memory.workspace = allocate(kernel->workspace_bytes());
  kernel->Bind(memory);
  const auto graph = cuda::CaptureGraph(&stream, [&] { kernel->Run({}); });
  const float x[] = {1, 2, 4};
  for (const int64_t rows : {1, 3, 2}) {
    for (const int i :
         {kIn.min, kIn.max, kIn.biased_min, kIn.min_steps, kIn.biased_max, kIn.max_steps})
      *memory.inputs[i].as<float>() = 0;
    std::copy(std::begin(x), std::end(x), memory.inputs[kIn.x].as<float>());
    backend->BeginRun({.valid_rows = rows});
    graph->Replay();
    stream.Wait();
    EXPECT_NEAR(*memory.inputs[kIn.max].as<float>(), x[rows - 1], 1e-3) << rows;
    EXPECT_EQ(*memory.inputs[kIn.max_steps].as<float>(), 1);
  }
}

}  // namespace
}  // namespace carole::testing
