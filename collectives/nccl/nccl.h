// The interface of libcarole_nccl.so, which loader.cpp loads.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/device_all_reduce.h"
#include "collectives/nccl/loader.h"

namespace carole::collectives {

inline constexpr size_t kNcclIdBytes = 128;
using NcclId = std::array<std::byte, kNcclIdBytes>;

// A group of ranks that an NCCL communicator connects, and this rank's number in it.
struct NcclGroup {
  NcclId id;
  int rank = 0, size = 1;
};
// The groups of sums of one kind. A sum over all ranks is a sum over each of these groups, in this
// order.
using NcclLane = std::vector<NcclGroup>;

struct NcclModule {
  int version;          // 22809 is 2.28.9
  NcclId (*make_id)();  // one rank of a group calls it
  // Returns the UUID of a GPU, or of a slice of it (MIG), in the form of nvidia-smi. The slices of
  // a GPU share its PCI bus id.
  std::string (*uuid)(int device);
  // Connects the ranks; the caller owns the result. The first lane is for sums; a second one is for
  // urgent sums. Collective. Calls `wait` repeatedly while waiting for other ranks; `wait` throws
  // to give up. Throws DeviceError, CommError or ConfigError.
  DeviceAllReduce* (*connect)(std::span<const NcclLane> lanes, const DeviceStream& device,
                              const std::function<void()>& wait);
};

// Name of the exported function `const NcclModule* ()`.
inline constexpr const char* kNcclModule = "carole_nccl_module";

// The first version of NCCL that reads NCCL_MULTI_RANK_GPU_ENABLE, with which ranks can share a
// GPU.
inline constexpr int kMinVersionToShareGpus = 23000;

// Returns the lanes of this rank. Collective.
std::vector<NcclLane> MakeLanes(Communicator& communicator, const NcclModule& nccl,
                                const NcclOptions& options);

// Throws ConfigError unless all ranks have the same version of NCCL. versions[r] is that of rank r,
// whose name is names[r], such as "rank 3 (host)".
void RequireOneVersion(std::span<const int> versions, std::span<const std::string> names);

// Throws ConfigError if two ranks use the same GPU, unless they can share it. gpus[r] is the UUID
// and the host of rank r's GPU. `may_share` is whether NCCL_MULTI_RANK_GPU_ENABLE is 1.
void RequireOneRankPerGpu(std::span<const std::string> gpus, int version, bool may_share);

}  // namespace carole::collectives
