// Loads libcarole_nccl.so and connects the ranks' GPUs.
#include "collectives/nccl/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "collectives/nccl/nccl.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/hints.h"
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

bool MayShareGpus() {
  const char* share = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return share != nullptr && std::string_view(share) == "1";
}

// While a captured step is in flight, a step that is not captured may start, such as a short last
// one. NCCL supports that only with graph mixing, which is its default. Without it, the ranks may
// run the two steps' sums in different orders, and wait for each other forever.
void RequireGraphMixing() {
  const char* mixing = std::getenv("NCCL_GRAPH_MIXING_SUPPORT");
  if (mixing == nullptr || std::string_view(mixing) != "0") return;
  throw ConfigError(
      "[nccl] NCCL_GRAPH_MIXING_SUPPORT: steps with and without CUDA graphs would not be kept in "
      "order: got 0, want 1; unset it");
}

// Returns what helps most often if NCCL cannot start.
std::string DescribeRemedies() {
  std::error_code error;
  const std::filesystem::space_info shm = std::filesystem::space("/dev/shm", error);
  const std::string room =
      error ? "cannot be read" : fmt::format("has {} MB free", shm.available >> 20);
  return fmt::format(
      "; NCCL_NVLS_ENABLE=0 helps if NVLink SHARP cannot be used, as in some virtual machines; "
      "/dev/shm {}: {}, and --ulimit memlock=-1",
      room, kMoreSharedMemoryHint);
}

// Compares what NCCL would refuse later, with an error that says less. All ranks throw the same
// error. Collective.
void CheckRanksFit(Communicator& communicator, const NcclModule& nccl, int device) {
  struct Facts {
    int version = 0;
    std::array<char, 64> uuid{};
  };
  Facts mine{.version = nccl.version};
  nccl.uuid(device).copy(mine.uuid.data(), mine.uuid.size() - 1);
  std::vector<int> versions;
  std::vector<std::string> names, gpus;
  for (const Facts& rank : AllGather(communicator, mine, {.what = "GPUs of ranks"})) {
    const std::string& name = communicator.NameOf(static_cast<int>(names.size()));
    versions.push_back(rank.version);
    gpus.push_back(fmt::format("{} {}", rank.uuid.data(), name.substr(name.find('('))));
    names.push_back(name);
  }
  RequireOneVersion(versions, names);
  RequireOneRankPerGpu(gpus, nccl.version, MayShareGpus());
}

// Connects `size` ranks. The first of them, as a rank of `communicator`, makes their id. `rank` is
// this rank's number among them. Collective over all ranks of `communicator`.
NcclGroup MakeGroup(Communicator& communicator, const NcclModule& nccl, int first, int rank,
                    int size) {
  const NcclId mine = communicator.rank() == first ? nccl.make_id() : NcclId{};
  return {.id = AllGather(communicator, mine, {.what = "nccl ids"})[static_cast<size_t>(first)],
          .rank = rank,
          .size = size};
}

}  // namespace

// A sum of two floats has the same bits in either order. So in tree order, ranks add in pairs: each
// rank with the next one, then each of both with its counterpart in the next pair, and so on. With
// four ranks:
//
//   rank           0              1              2              3
//   distance 1     r0+r1          r1+r0          r2+r3          r3+r2
//   distance 2     (r0+r1)+(r2+r3) on all ranks
std::vector<NcclLane> MakeLanes(Communicator& communicator, const NcclModule& nccl,
                                const NcclOptions& options) {
  const int rank = communicator.rank(), size = communicator.size();
  std::vector<NcclLane> lanes(options.has_urgent_sums ? 2 : 1);
  if (options.in_tree_order) {
    CAROLE_CHECK(std::has_single_bit(static_cast<unsigned>(size)), "{} ranks in a tree", size);
    for (int distance = 1; distance < size; distance *= 2) {
      const int first = rank & ~distance;
      lanes[0].push_back(MakeGroup(communicator, nccl, first, rank == first ? 0 : 1, 2));
    }
  }
  for (NcclLane& lane : lanes) {
    if (lane.empty()) lane.push_back(MakeGroup(communicator, nccl, 0, rank, size));
  }
  return lanes;
}

void RequireOneVersion(std::span<const int> versions, std::span<const std::string> names) {
  const auto other = std::ranges::find_if(versions, [&](int v) { return v != versions[0]; });
  if (other == versions.end()) return;
  throw ConfigError(fmt::format(
      "[nccl] NCCL: different versions: got {} on {} and {} on {}, want one version; install the "
      "same libnccl2 on all hosts",
      Describe(versions[0]), names[0], Describe(*other), names[other - versions.begin()]));
}

void RequireOneRankPerGpu(std::span<const std::string> gpus, int version, bool may_share) {
  if (may_share && version >= kMinVersionToShareGpus) return;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto first = static_cast<size_t>(std::ranges::find(gpus, gpus[rank]) - gpus.begin());
    if (first == rank) continue;
    throw ConfigError(fmt::format(
        "[nccl] {}: ranks {} and {} both use it: got NCCL {}{}, want a GPU for each rank; "
        "start fewer ranks on this host, or set NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL {} or newer",
        gpus[rank], first, rank, Describe(version),
        may_share ? "" : " without NCCL_MULTI_RANK_GPU_ENABLE=1",
        Describe(kMinVersionToShareGpus)));
  }
}

std::unique_ptr<DeviceAllReduce> ConnectByNccl(Communicator& communicator,
                                               const DeviceStream& device,
                                               const NcclOptions& options) {
  if (communicator.size() == 1) return nullptr;
  RequireGraphMixing();
  const NcclModule& nccl = LoadModule();
  CheckRanksFit(communicator, nccl, device.device);
  const std::vector<NcclLane> lanes = MakeLanes(communicator, nccl, options);
  const auto start = std::chrono::steady_clock::now();
  const auto wait = [&] {
    const double waited = SecondsSince(start);
    if (waited < options.deadline_seconds) return;
    throw CommError(fmt::format(
        "[nccl] connecting {} ranks: deadline: not connected after {:.0f} s; NCCL_DEBUG=INFO shows "
        "which network interfaces NCCL tries, NCCL_SOCKET_IFNAME selects one",
        communicator.size(), waited));
  };
  try {
    return std::unique_ptr<DeviceAllReduce>(nccl.connect(lanes, device, wait));
  } catch (const CommError& error) {
    throw CommError(error.what() + DescribeRemedies());
  }
}

std::string NcclVersion() { return Describe(LoadModule().version); }

}  // namespace carole::collectives
