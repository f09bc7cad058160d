// Loads libcarole_nccl.so and connects the ranks' GPUs.
#include "collectives/nccl/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/nccl/nccl.h"
#include "src/core/error.h"
#include "src/core/module.h"
#include "src/core/stopwatch.h"

namespace carole::collectives {
namespace {

const NcclModule& LoadModule() {
  static const NcclModule& module = *LoadFunction<const NcclModule*()>(
      {.tag = "nccl",
       .library = "libcarole_nccl.so",
       .if_missing = "it was built without NCCL; start one rank, or build where NCCL's headers are",
       .dependencies = "NCCL (libnccl.so.2)"},
      kNcclModule)();
  return module;
}

std::string Describe(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::vector<std::string> GpusOfRanks(Communicator& communicator, const std::string& mine) {
  std::array<char, 32> bus_id{};
  mine.copy(bus_id.data(), bus_id.size() - 1);
  const auto all = AllGather(communicator, bus_id, {.what = "GPUs of ranks"});
  std::vector<std::string> gpus;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const std::string& name = communicator.NameOf(rank);  // "rank 3 (host)"
    gpus.push_back(fmt::format("{} {}", all[rank].data(), name.substr(name.find('('))));
  }
  return gpus;
}

}  // namespace

void RequireOneRankPerGpu(std::span<const std::string> gpus, int version, bool may_share) {
  if (may_share && version >= kMinVersionToShareGpus) return;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto first = static_cast<size_t>(std::ranges::find(gpus, gpus[rank]) - gpus.begin());
    if (first == rank) continue;
    throw ConfigError(fmt::format(
        "[nccl] GPU {}: ranks {} and {} both use it: got NCCL {}{}, want a GPU for each rank; "
        "start "
        "fewer ranks on this host, or set NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL {} or newer",
        gpus[rank], first, rank, Describe(version),
        may_share ? "" : " without NCCL_MULTI_RANK_GPU_ENABLE=1",
        Describe(kMinVersionToShareGpus)));
  }
}

std::unique_ptr<DeviceAllReduce> ConnectByNccl(Communicator& communicator,
                                               const DeviceStream& device,
                                               double deadline_seconds) {
  if (communicator.size() == 1) return nullptr;
  const NcclModule& nccl = LoadModule();
  const char* share = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  RequireOneRankPerGpu(GpusOfRanks(communicator, nccl.pci_bus_id(device.device)), nccl.version,
                       share != nullptr && std::string_view(share) == "1");
  NcclId id{};
  if (communicator.rank() == 0) id = nccl.make_id();
  communicator.Broadcast(std::as_writable_bytes(std::span(id)), 0, {.what = "nccl id"});
  const auto start = std::chrono::steady_clock::now();
  const auto wait = [&] {
    const double waited = SecondsSince(start);
    if (waited < deadline_seconds) return;
    throw CommError(fmt::format(
        "[nccl] connecting {} ranks: deadline: not connected after {:.0f} s; NCCL_DEBUG=INFO shows "
        "which network interfaces NCCL tries, NCCL_SOCKET_IFNAME selects one",
        communicator.size(), waited));
  };
  return std::unique_ptr<DeviceAllReduce>(
      nccl.connect(id, communicator.rank(), communicator.size(), device, wait));
}

std::string NcclVersion() { return Describe(LoadModule().version); }

}  // namespace carole::collectives
