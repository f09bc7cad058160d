// What libcarole_nccl.so gives to the loader (loader.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "collectives/device_sums.h"
#include "collectives/nccl/loader.h"

namespace carole::collectives {

inline constexpr size_t kNcclIdBytes = 128;
using NcclId = std::array<std::byte, kNcclIdBytes>;

struct NcclModule {
  int version;                        // 22809 is 2.28.9
  NcclId (*make_id)();                // by one rank, for all
  std::string (*gpu_of)(int device);  // its place on the bus, alike for all processes of a host
  // Collective. `wait` is called while other ranks are awaited, and throws when that should end.
  DeviceSums* (*connect)(const NcclId& id, int rank, int size, const DeviceStream& place,
                         const std::function<void()>& wait);
};

// Name of the exported function `const NcclModule* ()`.
inline constexpr const char* kNcclModule = "carole_nccl_module";

// Where several ranks may have one GPU: NCCL of this version reads NCCL_MULTI_RANK_GPU_ENABLE.
inline constexpr int kNcclSharesGpus = 23000;

// gpus[r]: host and place on its bus of rank r's GPU. `may_share`: that variable is 1. Throws
// ConfigError that names two ranks on one GPU, unless they may share it.
void RequireOwnGpus(std::span<const std::string> gpus, int version, bool may_share);

}  // namespace carole::collectives
