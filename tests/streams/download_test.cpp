// Tests copies to the host, on emulated streams, which run work later than it is enqueued.
#include "src/backend/cuda/runtime/download.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>

namespace carole::cuda {
namespace {

TEST(Download, CopiesTheResultsOfEarlierKernels) {
  EmulatedStream kernels;
  std::byte device{0};
  const auto download = MakeDownload(&kernels, AllocateOnHost(1), 1);
  for (int run = 1; run < 40; ++run) {
    kernels.Push([&, run] { device = std::byte(run); });
    download->Begin(&device);
    kernels.Push([&] { device = std::byte{0}; });
    EXPECT_EQ(*download->Wait(), std::byte(run));
  }
  kernels.Wait();
}

TEST(Download, DoesNotWaitForLaterWork) {
  EmulatedStream kernels;
  const std::byte device{7};
  std::atomic<bool> may_end{false};
  const auto download = MakeDownload(&kernels, AllocateOnHost(1), 1);
  download->Begin(&device);
  kernels.Push([&] {
    while (!may_end) std::this_thread::yield();
  });
  EXPECT_EQ(*download->Wait(), std::byte{7});  // would hang if it waited for the kernel
  may_end = true;
  kernels.Wait();  // the kernel reads may_end
}

}  // namespace
}  // namespace carole::cuda
