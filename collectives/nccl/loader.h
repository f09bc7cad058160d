// NCCL sums the memory of the ranks' GPUs.
#pragma once

#include <string>

#include "collectives/communicator.h"

namespace carole::collectives {

// Where a rank computes.
struct DeviceStream {
  int device = 0;          // CUDA's number
  void* stream = nullptr;  // cudaStream_t that computes; outlives the communicator
};

// Lets the communicator sum this device's memory with NCCL, which is loaded now: the library
// libcarole_nccl.so beside the program, and libnccl.so.2 that it needs. Collective. Does nothing
// with one rank. Throws ConfigError when a library is missing, CommError when NCCL cannot connect
// the ranks before the deadline.
void UseNccl(Communicator& communicator, const DeviceStream& place, double deadline_seconds);

// "2.28.9", of the library that is loaded; throws ConfigError as UseNccl() does.
std::string NcclVersion();

}  // namespace carole::collectives
