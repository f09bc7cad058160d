// Connects the GPUs of the ranks with NCCL, so that collectives can reduce GPU memory.
#pragma once

#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/device_all_reduce.h"

namespace carole::collectives {

// The GPU and stream on which a rank computes.
struct DeviceStream {
  int device = 0;          // number in the CUDA runtime
  void* stream = nullptr;  // cudaStream_t of the computation; must outlive the communicator
};

// Connects this rank's device with those of the other ranks, for
// DeviceCollectives::SetDeviceAllReduce. Loads libcarole_nccl.so, which lies next to the program,
// and libnccl.so.2, which it needs. Collective. Returns null if there is only one rank. Throws
// ConfigError if a library is missing or ranks share a GPU, and CommError if NCCL cannot connect
// the ranks before the deadline.
std::unique_ptr<DeviceAllReduce> ConnectByNccl(Communicator& communicator,
                                               const DeviceStream& device, double deadline_seconds);

// Returns the version of the NCCL library, such as "2.28.9". Loads it; throws ConfigError as
// ConnectByNccl() does.
std::string NcclVersion();

}  // namespace carole::collectives
