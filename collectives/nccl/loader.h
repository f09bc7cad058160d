// Connects the GPUs of the ranks with NCCL, so that collectives can reduce GPU memory.
#pragma once

#include <string>

#include "collectives/communicator.h"

namespace carole::collectives {

// The GPU and stream on which a rank computes.
struct DeviceStream {
  int device = 0;          // number in the CUDA runtime
  void* stream = nullptr;  // cudaStream_t of the computation; must outlive the communicator
};

// Lets the communicator reduce memory of this device with NCCL. Loads libcarole_nccl.so, which lies
// next to the program, and libnccl.so.2, which it needs. Collective. Does nothing with one rank.
// Throws ConfigError if a library is missing or ranks share a GPU, and CommError if NCCL cannot
// connect the ranks before the deadline.
void UseNccl(Communicator& communicator, const DeviceStream& device, double deadline_seconds);

// Returns the version of the NCCL library, such as "2.28.9". Loads it; throws ConfigError as
// UseNccl() does.
std::string NcclVersion();

}  // namespace carole::collectives
