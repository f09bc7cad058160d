// The CUDA backend reports failed CUDA calls as exceptions. Runs on the emulated CUDA runtime.
#include <gmock/gmock.h>

#include "src/backend/cuda/runtime/device_memory.h"
#include "src/backend/ops/relu.h"
#include "src/core/error.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A fault of a kernel is reported by the next CUDA call, whichever that is, and by all later calls.
TEST(DeviceErrors, StickyErrorNamesTheCallAndUnwinds) {
  const auto backend = MakeEmulatedCudaBackend(1);
  DeviceMemory memory = cuda::AllocateDevice(64, nullptr);
  const FailEveryCall broken;
  const OpSpec spec = SameShapeSpec(op::kRelu, ReluAttributes{}, {2, 3}, 1);
  EXPECT_THAT([&] { RunPlain(*backend, spec, {Elements(6, 1.0)}); },
              ThrowsMessage<DeviceError>(AllOf(HasSubstr("[cuda] cudaLaunchKernelEx"),
                                               HasSubstr("cudaErrorIllegalAddress"))));
  EXPECT_THAT([&] { cuda::AllocateDevice(64, nullptr); },
              ThrowsMessage<DeviceError>(HasSubstr("[cuda] cudaMalloc: ")));
  memory.reset();  // does not throw
}

TEST(DeviceErrors, OutOfMemorySaysWhatIsFreeAndWhatHelps) {
  EXPECT_THAT([] { cuda::AllocateDevice(size_t{1} << 60, nullptr); },
              ThrowsMessage<DeviceMemoryError>(AllOf(
                  HasSubstr("[cuda] GPU memory: not enough: got 16384 MB free of 16384 MB, want"),
                  HasSubstr("use a smaller \x1f$(batch_size) or \x1f$(activation_memory)"))));
}

}  // namespace
}  // namespace carole::testing
