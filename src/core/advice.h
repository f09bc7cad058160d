// What to do about problems that several parts of the program find.
#pragma once

namespace carole {

// The ranks of a machine find too little room in /dev/shm.
inline constexpr char kMoreSharedMemory[] =
    "give a container --shm-size=2g (Kubernetes: an emptyDir of medium Memory at /dev/shm)";

}  // namespace carole
