// NCCL as collectives/nccl uses it, among threads of one process: a sum waits in its stream until
// all ranks' streams have come to theirs.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

enum ncclResult_t {
  ncclSuccess,
  ncclSystemError,
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

struct EmulatedGroup {
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  bool is_aborted = false;
  struct Round {
    int come = 0, gone = 0;
    std::vector<double> sum;
  };
  std::map<int, Round> rounds;
};
struct EmulatedComm {
  std::shared_ptr<EmulatedGroup> group;
  int size = 0;
  int round = 0;
  std::atomic<int> num_asked{0}, num_recorded{0};  // sums
};
using ncclComm_t = EmulatedComm*;

// What a test breaks.
struct EmulatedFaults {
  std::atomic<bool> fails{false};  // communicators report a failed peer
  std::atomic<bool> hangs{false};  // sums do not end until they are aborted
  std::atomic<bool> pends{false};  // they never reach their stream
};
inline EmulatedFaults& NcclFaults() {
  static EmulatedFaults faults;
  return faults;
}

inline const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "emulated";
}
inline ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next{1};
  std::memset(id, 0, sizeof *id);
  const int number = next++;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int,
                                           ncclConfig_t* config) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<EmulatedGroup>> groups;
  if (config->blocking != 0) return ncclInvalidUsage;
  const std::lock_guard lock(mutex);
  auto& group = groups[std::string(id.internal, sizeof id.internal)];
  if (group == nullptr) group = std::make_shared<EmulatedGroup>();
  *comm = new EmulatedComm{.group = group, .size = size};
  const std::lock_guard in_group(group->mutex);
  ++group->joined;
  return ncclInProgress;
}
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(comm->group->mutex);
  *state = NcclFaults().fails                          ? ncclRemoteError
           : comm->group->joined < comm->size          ? ncclInProgress
           : NcclFaults().pends && comm->num_asked > 0 ? ncclInProgress
                                                       : ncclSuccess;
  return ncclSuccess;
}
inline ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->group->mutex);
    comm->group->is_aborted = true;
    comm->group->changed.notify_all();
  }
  // As the library does, without end, for graphs that hold its sums.
  while (comm->num_recorded > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return ncclSuccess;  // leaked: streams may still look at it
}

template <typename T>
void EmulatedSum(EmulatedComm* comm, int number, T* data, size_t count) {
  EmulatedGroup& group = *comm->group;
  std::unique_lock lock(group.mutex);
  EmulatedGroup::Round& round = group.rounds[number];
  round.sum.resize(count);
  for (size_t i = 0; i < count; ++i) round.sum[i] += data[i];
  ++round.come;
  group.changed.notify_all();
  group.changed.wait(
      lock, [&] { return group.is_aborted || (round.come == comm->size && !NcclFaults().hangs); });
  for (size_t i = 0; i < count && !group.is_aborted; ++i) data[i] = static_cast<T>(round.sum[i]);
}
// What a graph holds of a sum counts until the graph ends.
inline ncclResult_t ncclAllReduce(const void*, void* data, size_t count, ncclDataType_t type,
                                  ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  if (NcclFaults().fails) return ncclSuccess;
  ++comm->num_asked;
  std::shared_ptr<EmulatedComm> recorded;
  if (Emulated(stream)->capture != nullptr) {
    ++comm->num_recorded;
    recorded.reset(comm, [](EmulatedComm* of) { --of->num_recorded; });
  }
  stream->Push([=, recorded = std::move(recorded)] {
    const int number = comm->round++;
    if (type == ncclFloat32) return EmulatedSum(comm, number, static_cast<float*>(data), count);
    EmulatedSum(comm, number, static_cast<double*>(data), count);
  });
  return ncclSuccess;
}
