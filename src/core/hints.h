// Advice for problems that several parts of the program report in the same words.
#pragma once

namespace carole {

// For errors about too little shared memory (/dev/shm) for the ranks of a host. Fits after "; ".
inline constexpr char kMoreSharedMemoryHint[] =
    "give a container --shm-size=2g (Kubernetes: an emptyDir of medium Memory at /dev/shm)";

}  // namespace carole
