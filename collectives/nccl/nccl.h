// The interface of libcarole_nccl.so, which loader.cpp loads.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "collectives/device_all_reduce.h"
#include "collectives/nccl/loader.h"

namespace carole::collectives {

inline constexpr size_t kNcclIdBytes = 128;
using NcclId = std::array<std::byte, kNcclIdBytes>;

struct NcclModule {
  int version;          // 22809 is 2.28.9
  NcclId (*make_id)();  // one rank calls it and broadcasts the result
  // Returns the PCI bus id of a GPU, which is the same for all processes of a host.
  std::string (*pci_bus_id)(int device);
  // Connects the ranks; the caller owns the result. Collective. Calls `wait` repeatedly while
  // waiting for other ranks; `wait` throws to give up. Throws DeviceError, CommError or
  // ConfigError.
  DeviceAllReduce* (*connect)(const NcclId& id, int rank, int size, const DeviceStream& device,
                              const std::function<void()>& wait);
};

// Name of the exported function `const NcclModule* ()`.
inline constexpr const char* kNcclModule = "carole_nccl_module";

// The first version of NCCL that reads NCCL_MULTI_RANK_GPU_ENABLE, with which ranks can share a
// GPU.
inline constexpr int kMinVersionToShareGpus = 23000;

// Throws ConfigError if two ranks use the same GPU, unless they can share it. gpus[r] is the PCI
// bus id and the host of rank r's GPU. `may_share` is whether NCCL_MULTI_RANK_GPU_ENABLE is 1.
void RequireOneRankPerGpu(std::span<const std::string> gpus, int version, bool may_share);

}  // namespace carole::collectives
