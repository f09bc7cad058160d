// Emulates the part of NCCL that collectives/nccl uses, among threads or processes of one machine.
// An all-reduce waits in its stream until the streams of all ranks have come to theirs.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "cuda_runtime.h"

enum ncclResult_t {
  ncclSuccess,
  ncclSystemError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress
};
enum ncclDataType_t { ncclFloat32, ncclFloat64 };
enum ncclRedOp_t { ncclSum };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1 }

// The memory that the ranks of a communicator share. It is named by their unique id, and has a slot
// for the data of each rank.
struct EmulatedGroup {
  static constexpr size_t kSlot = 16384, kMostRanks = 16;
  std::atomic<int> joined, waiting, rounds;
  std::atomic<bool> is_aborted;
  double slots[kMostRanks][kSlot];

  // Returns when all ranks have called it; false if the group was aborted. Never returns true while
  // `hangs` is set.
  bool Barrier(int size, const std::atomic<bool>& hangs) {
    const int round = rounds;
    if (++waiting == size && !hangs) {
      waiting = 0;
      ++rounds;
    }
    while (rounds == round && !is_aborted) std::this_thread::yield();
    return !is_aborted;
  }
};
struct EmulatedComm {
  EmulatedGroup* group = nullptr;
  int rank = 0, size = 0;
  std::atomic<int> num_asked{0}, num_enqueued{0}, num_captured{0};  // all-reduces
};
using ncclComm_t = EmulatedComm*;

// Faults that a test can inject.
struct EmulatedFaults {
  std::atomic<bool> fails{false};    // communicators report a failed peer
  std::atomic<bool> hangs{false};    // all-reduces do not end until they are aborted
  std::atomic<bool> pends{false};    // all-reduces never reach their stream
  std::atomic<bool> refuses{false};  // creating a communicator fails
};
inline EmulatedFaults& NcclFaults() {
  static EmulatedFaults faults;
  return faults;
}

inline const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "emulated";
}
inline const char* ncclGetLastError(ncclComm_t) {
  return NcclFaults().fails ? "Net : Connection reset by peer" : "";
}
inline ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next{1};
  std::snprintf(id->internal, sizeof id->internal, "/carole-emulated-%d-%d", getpid(), next++);
  return ncclSuccess;
}
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                           ncclConfig_t* config) {
  if (config->blocking != 0 || size > int{EmulatedGroup::kMostRanks} || NcclFaults().refuses)
    return ncclInvalidUsage;
  const int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(EmulatedGroup)) != 0) return ncclSystemError;
  void* shared = mmap(nullptr, sizeof(EmulatedGroup), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) return ncclSystemError;
  *comm =
      new EmulatedComm{.group = static_cast<EmulatedGroup*>(shared), .rank = rank, .size = size};
  if (++(*comm)->group->joined == size) shm_unlink(id.internal);
  return ncclInProgress;
}
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = NcclFaults().fails                     ? ncclRemoteError
           : comm->group->joined < comm->size     ? ncclInProgress
           : comm->num_enqueued < comm->num_asked ? ncclInProgress
                                                  : ncclSuccess;
  return ncclSuccess;
}
inline ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->group->is_aborted = true;
  // As in the library, waits forever for captured graphs that contain its all-reduces.
  while (comm->num_captured > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return ncclSuccess;  // leaks the memory, because streams may still use it
}

// Sums `data` over all ranks, with the same bits on every rank.
template <typename T>
void EmulatedSum(const EmulatedComm& comm, T* data, size_t count) {
  EmulatedGroup& group = *comm.group;
  for (size_t begin = 0; begin < count; begin += EmulatedGroup::kSlot) {
    const size_t part = std::min(EmulatedGroup::kSlot, count - begin);
    std::copy_n(data + begin, part, group.slots[comm.rank]);
    if (!group.Barrier(comm.size, NcclFaults().hangs)) return;
    for (size_t i = 0; i < part; ++i) {
      double sum = 0;
      for (int rank = 0; rank < comm.size; ++rank) sum += group.slots[rank][i];
      data[begin + i] = static_cast<T>(sum);
    }
    if (!group.Barrier(comm.size, NcclFaults().hangs)) return;
  }
}
// Enqueues the all-reduce a little later, on a thread of its own, as the library does. A captured
// all-reduce counts in num_captured until its graph is destroyed.
inline ncclResult_t ncclAllReduce(const void*, void* data, size_t count, ncclDataType_t type,
                                  ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  if (NcclFaults().fails) return ncclSuccess;
  if (comm->num_enqueued < comm->num_asked) return ncclInvalidUsage;  // the last call is pending
  ++comm->num_asked;
  if (NcclFaults().pends) return ncclInProgress;
  std::shared_ptr<EmulatedComm> captured;
  if (Emulated(stream)->capture != nullptr) {
    ++comm->num_captured;
    captured.reset(comm, [](EmulatedComm* of) { --of->num_captured; });
  }
  std::thread([=, captured = std::move(captured)]() mutable {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    stream->Push([=, captured = std::move(captured)] {
      if (type == ncclFloat32) return EmulatedSum(*comm, static_cast<float*>(data), count);
      EmulatedSum(*comm, static_cast<double*>(data), count);
    });
    ++comm->num_enqueued;
  }).detach();
  return ncclInProgress;
}
