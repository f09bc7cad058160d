#include <fmt/format.h>

#include <chrono>

#include "collectives/communicator.h"
#include "collectives/nccl/nccl.h"
#include "src/core/error.h"
#include "src/core/module.h"

namespace carole::collectives {
namespace {

const NcclModule& Loaded() {
  static const NcclModule& module = *LoadFunction<const NcclModule*()>(
      {.tag = "nccl",
       .library = "libcarole_nccl.so",
       .without = "it was built without NCCL; start one rank, or build where NCCL's headers are",
       .needs = "NCCL (libnccl.so.2)"},
      kNcclModule)();
  return module;
}

}  // namespace

void UseNccl(Communicator& communicator, const DevicePlace& place, double deadline_seconds) {
  if (communicator.size() == 1) return;
  const NcclModule& nccl = Loaded();
  NcclId id{};
  if (communicator.rank() == 0) id = nccl.make_id();
  communicator.Broadcast(std::as_writable_bytes(std::span(id)), 0, {.what = "nccl id"});
  const auto start = std::chrono::steady_clock::now();
  const auto wait = [&] {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() < deadline_seconds) return;
    throw CommError(fmt::format(
        "[nccl] connecting {} ranks: deadline: not through after {:.0f} s; NCCL_DEBUG=INFO shows "
        "which network interfaces it tries, NCCL_SOCKET_IFNAME chooses one",
        communicator.size(), waited.count()));
  };
  communicator.SetDeviceSums(std::unique_ptr<DeviceSums>(
      nccl.connect(id, communicator.rank(), communicator.size(), place, wait)));
}

std::string NcclVersion() {
  const int version = Loaded().version;
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace carole::collectives
