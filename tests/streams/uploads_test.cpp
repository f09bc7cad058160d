// Tests copies that overlap with kernels, on emulated streams, which run work later than it is
// enqueued.
#include "src/backend/cuda/runtime/uploads.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

namespace carole::cuda {
namespace {

using Bytes = std::vector<std::byte>;

// Launches a kernel that sleeps and then reads what was uploaded.
void LaunchReader(EmulatedStream& kernels, const Bytes& device, Bytes& seen, int milliseconds) {
  kernels.Push([&device, &seen, milliseconds] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    seen.push_back(device[0]);
  });
}

TEST(Uploads, KernelsReadWhatWasUploadedForThem) {
  EmulatedStream kernels;
  Bytes device(1), seen, want;
  {
    Uploads uploads(&kernels);
    Bytes staging[2] = {Bytes(1), Bytes(1)};
    for (int run = 0; run < 40; ++run) {
      uploads.WaitOnHost();
      Bytes& host = staging[run % 2];
      host[0] = std::byte(run);
      want.push_back(host[0]);
      uploads.Copy(device.data(), host.data(), 1);
      uploads.BeginReading();
      LaunchReader(kernels, device, seen, run % 2);
      uploads.EndReading();
    }
    kernels.Wait();
  }
  EXPECT_EQ(seen, want);
}

TEST(Uploads, OverlapWithKernelsThatDoNotReadThem) {
  EmulatedStream kernels;
  Uploads uploads(&kernels);
  Bytes device(1), host(1, std::byte{7});
  std::atomic<bool> may_end{false};
  uploads.EndReading();
  kernels.Push([&] {
    while (!may_end) std::this_thread::yield();
  });
  uploads.Copy(device.data(), host.data(), 1);
  uploads.WaitOnHost();  // would hang if it waited for the kernel
  EXPECT_EQ(device[0], std::byte{7});
  may_end = true;
  kernels.Wait();
}

}  // namespace
}  // namespace carole::cuda
