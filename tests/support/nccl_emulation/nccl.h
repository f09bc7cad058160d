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
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <type_traits>

#include "cuda_runtime.h"
#include "src/core/float16.h"

enum ncclResult_t {
  ncclSuccess,
  ncclSystemError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress
};
enum ncclDataType_t { ncclFloat32, ncclFloat64, ncclBfloat16 };
enum ncclRedOp_t { ncclSum };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking, maxCTAs;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1, 0 }

// The memory that the ranks of a communicator share. It is named by their unique id, and has a slot
// for the data of each rank.
struct EmulatedGroup {
  static constexpr size_t kSlot = size_t{1} << 18, kMostRanks = 16;
  std::atomic<int> joined, waiting, rounds;
  std::atomic<bool> is_aborted;
  std::atomic<uint64_t> clocks[kMostRanks];  // of the streams, when they came
  double slots[kMostRanks][kSlot];

  // Returns when all ranks have called it; false if the group was aborted. Never returns true while
  // `hangs` is set.
  bool Barrier(int size, const std::atomic<bool>& hangs) {
    const int round = rounds;
    if (++waiting == size && !hangs) {
      waiting = 0;
      ++rounds;
    }
    for (int checks = 0; rounds == round && !is_aborted; ++checks) {
      if (checks < 100) {
        std::this_thread::yield();
      } else {  // other ranks may need this core
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
    return !is_aborted;
  }
};
struct EmulatedComm {
  EmulatedGroup* group = nullptr;
  int rank = 0, size = 0;
  std::atomic<int> num_asked{0}, num_enqueued{0}, num_captured{0};  // all-reduces
  std::set<void*> registered;                                       // memory
};
using ncclComm_t = EmulatedComm*;

// Faults that a test can inject. CAROLE_EMULATED_NCCL=wrong_sums sets `wrong_sums` in a program of
// its own.
struct EmulatedFaults {
  std::atomic<bool> fails{false};          // communicators report a failed peer
  std::atomic<bool> hangs{false};          // all-reduces do not end until they are aborted
  std::atomic<bool> pends{false};          // all-reduces never reach their stream
  std::atomic<bool> refuses{false};        // creating a communicator fails
  std::atomic<bool> has_no_memory{false};  // ncclMemAlloc() fails
  std::atomic<bool> holds_large{false};    // all-reduces of 1000 elements or more wait
  // The second half of each all-reduce lacks the addend of the last rank, on all ranks.
  std::atomic<bool> wrong_sums{IsSet("wrong_sums")};

 private:
  static bool IsSet(std::string_view fault) {
    const char* set = std::getenv("CAROLE_EMULATED_NCCL");
    return set != nullptr && set == fault;
  }
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
// CAROLE_EMULATED_NCCL_VERSION=22907 sets the version on all ranks of MPI but rank 0.
inline ncclResult_t ncclGetVersion(int* version) {
  const char* others = std::getenv("CAROLE_EMULATED_NCCL_VERSION");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  *version =
      others == nullptr || rank == nullptr || std::atoi(rank) == 0 ? 22809 : std::atoi(others);
  return ncclSuccess;
}
inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next{1};
  std::snprintf(id->internal, sizeof id->internal, "/carole-emulated-%d-%d", getpid(), next++);
  return ncclSuccess;
}
// CAROLE_EMULATED_NCCL_FAILS=1 makes it fail, as on a machine where NCCL cannot start.
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                           ncclConfig_t* config) {
  if (config->blocking != 0 || size > int{EmulatedGroup::kMostRanks} || NcclFaults().refuses)
    return ncclInvalidUsage;
  if (std::getenv("CAROLE_EMULATED_NCCL_FAILS") != nullptr) return ncclSystemError;
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
// Ends the process if the caller makes a mistake that the library need not detect.
inline void EmulatedRequire(bool is_right, const char* what) {
  if (is_right) return;
  std::fprintf(stderr, "emulated NCCL: %s\n", what);
  std::abort();
}

// Memory of ncclMemAlloc(), and how many communicators it is registered with.
struct EmulatedNcclMemory {
  std::mutex mutex;
  std::map<void*, int> registrations;
};
inline EmulatedNcclMemory& NcclMemory() {
  static EmulatedNcclMemory memory;
  return memory;
}
inline ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (NcclFaults().has_no_memory || cudaMalloc(memory, bytes) != cudaSuccess)
    return ncclSystemError;
  std::fill_n(static_cast<char*>(*memory), bytes, 'x');  // the library does not set it to zero
  const std::lock_guard lock(NcclMemory().mutex);
  NcclMemory().registrations[*memory] = 0;
  return ncclSuccess;
}
inline ncclResult_t ncclMemFree(void* memory) {
  const std::lock_guard lock(NcclMemory().mutex);
  const auto found = NcclMemory().registrations.find(memory);
  EmulatedRequire(found != NcclMemory().registrations.end(), "memory of others is freed");
  EmulatedRequire(found->second == 0, "memory is freed before it is deregistered");
  NcclMemory().registrations.erase(found);
  cudaFree(memory);
  return ncclSuccess;
}
inline ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t, void** handle) {
  const std::lock_guard lock(NcclMemory().mutex);
  ++NcclMemory().registrations.at(memory);
  comm->registered.insert(memory);
  *handle = memory;
  return ncclSuccess;
}
inline ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const std::lock_guard lock(NcclMemory().mutex);
  EmulatedRequire(comm->registered.erase(handle) == 1, "memory is deregistered twice");
  --NcclMemory().registrations.at(handle);
  return ncclSuccess;
}

inline ncclResult_t ncclCommAbort(ncclComm_t comm) {
  EmulatedRequire(comm->registered.empty(), "memory is registered when its communicator ends");
  comm->group->is_aborted = true;
  // As in the library, waits forever for captured graphs that contain its all-reduces.
  while (comm->num_captured > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return ncclSuccess;  // leaks the memory, because streams may still use it
}

template <typename T>
double Rounded(double value) {
  return std::is_same_v<T, carole::Bf16> ? carole::Bf16(static_cast<float>(value)) : value;
}

// Sums `data` over all ranks, with the same bits on every rank. As in the library, each addition of
// bf16 rounds.
template <typename T>
void EmulatedSum(const EmulatedComm& comm, T* data, size_t count) {
  EmulatedGroup& group = *comm.group;
  while (count >= 1000 && NcclFaults().holds_large) std::this_thread::yield();
  for (size_t begin = 0; begin < count; begin += EmulatedGroup::kSlot) {
    const size_t part = std::min(EmulatedGroup::kSlot, count - begin);
    std::copy_n(data + begin, part, group.slots[comm.rank]);
    group.clocks[comm.rank] = stream_clock;
    if (!group.Barrier(comm.size, NcclFaults().hangs)) return;
    for (int rank = 0; rank < comm.size; ++rank)
      stream_clock = std::max<uint64_t>(stream_clock, group.clocks[rank]);
    stream_clock += part;  // each element takes 1 ns
    for (size_t i = 0; i < part; ++i) {
      double sum = 0;
      const bool lacks_one = NcclFaults().wrong_sums && begin + i >= count / 2;
      for (int rank = 0; rank < comm.size - (lacks_one ? 1 : 0); ++rank)
        sum = Rounded<T>(sum + group.slots[rank][i]);
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
      switch (type) {
        case ncclFloat32:
          return EmulatedSum(*comm, static_cast<float*>(data), count);
        case ncclFloat64:
          return EmulatedSum(*comm, static_cast<double*>(data), count);
        case ncclBfloat16:
          return EmulatedSum(*comm, static_cast<carole::Bf16*>(data), count);
      }
    });
    ++comm->num_enqueued;
  }).detach();
  return ncclInProgress;
}
