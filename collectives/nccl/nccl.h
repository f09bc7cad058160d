// What libcarole_nccl.so gives to the loader (loader.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <functional>

#include "collectives/device_sums.h"

namespace carole::collectives {

inline constexpr size_t kNcclIdBytes = 128;
using NcclId = std::array<std::byte, kNcclIdBytes>;

struct NcclModule {
  int version;          // 22809 is 2.28.9
  NcclId (*make_id)();  // by one rank, for all
  // Collective. `wait` is called while other ranks are awaited, and throws when that should end.
  DeviceSums* (*connect)(const NcclId& id, int rank, int size, const DevicePlace& place,
                         const std::function<void()>& wait);
};

// Name of the exported function `const NcclModule* ()`.
inline constexpr const char* kNcclModule = "carole_nccl_module";

}  // namespace carole::collectives
