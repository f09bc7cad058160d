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

struct NcclOptions {
  double deadline_seconds = 60;  // to connect the ranks
  // Makes a second NCCL communicator, which carries the sums whose tag is urgent.
  bool has_urgent_sums = false;
  // Adds in the order of a binary tree over the ranks: first pairs of ranks, then pairs of pairs.
  // So sums have the same bits as those of AllReduceAlgorithm::kTree and kSharedMemory. The number
  // of ranks must be a power of two.
  bool in_tree_order = false;
};

// Connects this rank's device with those of the other ranks, for
// DeviceCollectives::SetDeviceAllReduce. Loads libcarole_nccl.so, which lies next to the program,
// and libnccl.so.2, which it needs. Collective. Returns null if there is only one rank. Throws
// ConfigError if a library is missing, its versions differ, or ranks share a GPU, and CommError if
// NCCL cannot connect the ranks before the deadline.
std::unique_ptr<DeviceAllReduce> ConnectByNccl(Communicator& communicator,
                                               const DeviceStream& device,
                                               const NcclOptions& options);

// Returns the version of the NCCL library, such as "2.28.9". Loads it; throws ConfigError as
// ConnectByNccl() does.
std::string NcclVersion();

}  // namespace carole::collectives
