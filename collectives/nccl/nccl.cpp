// DeviceSums by NCCL: a stream of its own beside the computing one, joined to it by events.
//
// The communicator is non-blocking: calls return ncclInProgress, and ncclCommGetAsyncError tells
// when they are through, so that a rank that waits for one that is gone can end.
#include "collectives/nccl/nccl.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::collectives {
namespace {

using Clock = std::chrono::steady_clock;

static_assert(sizeof(ncclUniqueId) == kNcclIdBytes);

void CheckCuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw DeviceError(
      fmt::format("[nccl] {}: {}; run `carole doctor`", call, cudaGetErrorString(status)));
}
#define CAROLE_CUDA(call) CheckCuda((call), #call)

bool IsFine(ncclResult_t status) { return status == ncclSuccess || status == ncclInProgress; }

// The kind of error, and what the library last said of one.
std::string Explain(ncclResult_t status) {
  const char* last = ncclGetLastError(nullptr);
  return fmt::format("{}{}{}; NCCL_DEBUG=WARN says more", ncclGetErrorString(status),
                     last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last);
}

void CheckNccl(ncclResult_t status, const char* call) {
  if (IsFine(status)) return;
  const std::string text = fmt::format("[nccl] {}: {}", call, Explain(status));
  // Another try, on other machines, would end alike.
  if (status == ncclInvalidUsage || status == ncclInvalidArgument) throw ConfigError(text);
  throw CommError(text);
}
#define CAROLE_NCCL(call) CheckNccl((call), #call)

constexpr ncclDataType_t TypeOf(float) { return ncclFloat32; }
constexpr ncclDataType_t TypeOf(double) { return ncclFloat64; }

class NcclSums final : public DeviceSums {
 public:
  NcclSums(const NcclId& id, int rank, int size, const DeviceStream& place,
           const std::function<void()>& wait)
      : device_(place.device), compute_(static_cast<cudaStream_t>(place.stream)) {
    CAROLE_CUDA(cudaSetDevice(device_));
    int least = 0, greatest = 0;
    CAROLE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    // Its few blocks go first, or they would wait for the rest of backward.
    CAROLE_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    for (Slot& slot : slots_) slot = MakeSlot();
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CAROLE_NCCL(ncclCommInitRankConfig(&comm_, size, unique, rank, &config));
    Finish("ncclCommInitRankConfig", wait);
    SumOfEachSize(wait);
  }
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;

  // Waits for what is under way, but not long: others may be gone. No recording may be left that
  // holds sums: the abort would wait for its end.
  ~NcclSums() override {
    if (cudaSetDevice(device_) != cudaSuccess) return;
    const auto start = Clock::now();
    while (cudaStreamQuery(stream_) == cudaErrorNotReady && Clock::now() - start < kLastWait)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ncclCommAbort(comm_);
    for (const Slot& slot : slots_) DestroySlot(slot);
    for (const Slot& slot : recorded_) DestroySlot(slot);
    cudaStreamDestroy(stream_);
  }

  // From any thread: the question makes a context on the thread's device, where it has none yet.
  bool Holds(const void* memory) const override {
    CAROLE_CUDA(cudaSetDevice(device_));
    cudaPointerAttributes attributes{};
    CAROLE_CUDA(cudaPointerGetAttributes(&attributes, memory));
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  }

  Ticket Mark() override {
    records_ = IsRecording();
    const Ticket ticket = records_ ? AddRecorded() : NextTicket();
    CAROLE_CUDA(cudaEventRecord(SlotOf(ticket).ready, compute_));
    return ticket;
  }

  void Sum(Ticket ticket, std::span<float> data) override { Enqueue(ticket, data); }
  void Sum(Ticket ticket, std::span<double> data) override { Enqueue(ticket, data); }

  void Join(Ticket ticket) override {
    CAROLE_CUDA(cudaStreamWaitEvent(compute_, SlotOf(ticket).done, 0));
  }

  bool IsRecorded(Ticket ticket) const override { return ticket >= kRecorded; }

  void NoteReplay() override {
    records_ = false;
    const Slot slot = SlotOf(NextTicket());
    CAROLE_CUDA(cudaEventRecord(slot.done, compute_));
    const std::lock_guard lock(mutex_);
    in_flight_.push_back({slot.done, Clock::now()});
  }

  std::string Trouble(double deadline_seconds) override {
    if (const ncclResult_t state = State(); !IsFine(state)) return Explain(state);
    // Else a thread's first look makes a context on GPU 0. It tells of kernels that failed, too.
    if (const cudaError_t error = cudaSetDevice(device_); error != cudaSuccess)
      return cudaGetErrorString(error);
    const std::optional<Clock::time_point> oldest = FindOldest();
    if (!oldest) return "";
    const std::chrono::duration<double> age = Clock::now() - *oldest;
    if (age.count() < deadline_seconds) return "";
    return fmt::format(
        "a sum is not through after {:.0f} s: a GPU or the network between them "
        "does not answer",
        age.count());
  }

 private:
  static constexpr auto kLastWait = std::chrono::seconds(2);
  static constexpr Ticket kSlots = 256;  // more than sums are ever in flight
  static constexpr Ticket kRecorded = Ticket{1} << 63;
  struct Slot {
    cudaEvent_t ready = nullptr, done = nullptr;
  };
  struct InFlight {
    cudaEvent_t done;
    Clock::time_point start;
  };

  static Slot MakeSlot() {
    Slot slot;
    CAROLE_CUDA(cudaEventCreateWithFlags(&slot.ready, cudaEventDisableTiming));
    CAROLE_CUDA(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming));
    return slot;
  }
  static void DestroySlot(const Slot& slot) {
    cudaEventDestroy(slot.ready);
    cudaEventDestroy(slot.done);
  }

  bool IsRecording() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CAROLE_CUDA(cudaStreamIsCapturing(compute_, &status));
    return status != cudaStreamCaptureStatusNone;
  }
  // Recorded events belong to the recording: nobody else may look at them, or record them again.
  Ticket AddRecorded() {
    const Slot slot = MakeSlot();
    const std::lock_guard lock(mutex_);
    recorded_.push_back(slot);
    return kRecorded | (recorded_.size() - 1);
  }
  Ticket NextTicket() {
    const Ticket ticket = next_++;
    if (ticket < kSlots) return ticket;
    const cudaEvent_t done = SlotOf(ticket).done;  // of the sum kSlots ago
    CAROLE_CUDA(cudaEventSynchronize(done));
    // Recorded again it would say that that old sum still runs.
    const std::lock_guard lock(mutex_);
    std::erase_if(in_flight_, [&](const InFlight& sum) { return sum.done == done; });
    return ticket;
  }
  Slot SlotOf(Ticket ticket) {
    if (!IsRecorded(ticket)) return slots_[ticket % kSlots];
    const std::lock_guard lock(mutex_);
    return recorded_[ticket & ~kRecorded];
  }

  // Since when the oldest sum is under way. A look at an event would end a recording of this
  // thread's.
  std::optional<Clock::time_point> FindOldest() {
    const std::lock_guard lock(mutex_);
    if (records_) return enqueuing_since_;
    while (!in_flight_.empty() && cudaEventQuery(in_flight_.front().done) == cudaSuccess)
      in_flight_.pop_front();
    return in_flight_.empty() ? enqueuing_since_ : in_flight_.front().start;
  }

  ncclResult_t State() {
    const std::lock_guard lock(mutex_);
    ncclResult_t state = ncclSuccess;
    const ncclResult_t status = ncclCommGetAsyncError(comm_, &state);
    return status == ncclSuccess ? state : status;
  }

  // Returns when the calls before are through on this rank.
  void Finish(const char* call, const std::function<void()>& wait) {
    ncclResult_t state = ncclInProgress;
    while ((state = State()) == ncclInProgress) {
      wait();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    CheckNccl(state, call);
  }

  // NCCL connects ranks, and takes memory for it, in the first sum of a size that wants another
  // algorithm. Here it is through before others ask what memory is free, and ranks that do not
  // reach each other are found out.
  void SumOfEachSize(const std::function<void()>& wait) {
    constexpr size_t kSizes[] = {2, size_t{256} << 10, size_t{16} << 20};
    constexpr size_t kBytes = std::ranges::max(kSizes) * sizeof(float);
    void* memory = nullptr;
    CAROLE_CUDA(cudaMalloc(&memory, kBytes));
    CAROLE_CUDA(cudaMemsetAsync(memory, 0, kBytes, stream_));
    for (size_t size : kSizes) AllReduce(std::span(static_cast<float*>(memory), size), wait);
    AllReduce(std::span(static_cast<double*>(memory), 1), wait);
    while (cudaStreamQuery(stream_) == cudaErrorNotReady) {
      wait();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    CAROLE_CUDA(cudaStreamSynchronize(stream_));
    CAROLE_CUDA(cudaFree(memory));  // not after an error: it would wait for the sums
  }

  // Returns when the sum is in the stream: what comes later must not come before it.
  template <typename T>
  void AllReduce(std::span<T> data, const std::function<void()>& wait) {
    {
      const std::lock_guard lock(mutex_);
      CAROLE_NCCL(ncclAllReduce(data.data(), data.data(), data.size(), TypeOf(T{}), ncclSum, comm_,
                                stream_));
    }
    Finish("ncclAllReduce", wait);
  }

  template <typename T>
  void Enqueue(Ticket ticket, std::span<T> data) {
    CAROLE_CUDA(cudaSetDevice(device_));  // this thread's
    const Slot slot = SlotOf(ticket);
    CAROLE_CUDA(cudaStreamWaitEvent(stream_, slot.ready, 0));
    {
      const std::lock_guard lock(mutex_);
      enqueuing_since_ = Clock::now();
    }
    AllReduce(data, [] {});
    CAROLE_CUDA(cudaEventRecord(slot.done, stream_));
    const std::lock_guard lock(mutex_);
    enqueuing_since_.reset();
    if (!IsRecorded(ticket)) in_flight_.push_back({slot.done, Clock::now()});
  }

  const int device_;
  const cudaStream_t compute_;
  cudaStream_t stream_ = nullptr;
  Slot slots_[kSlots];
  std::deque<Slot> recorded_;
  Ticket next_ = 0;                   // of the computing thread
  std::atomic<bool> records_{false};  // which is recorded
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  std::deque<InFlight> in_flight_;
  std::optional<Clock::time_point> enqueuing_since_;
};

NcclId MakeId() {
  ncclUniqueId unique;
  CAROLE_NCCL(ncclGetUniqueId(&unique));
  NcclId id;
  std::memcpy(id.data(), &unique, id.size());
  return id;
}

std::string GpuOf(int device) {
  char place[32] = {};
  CAROLE_CUDA(cudaDeviceGetPCIBusId(place, sizeof place, device));
  return place;
}

DeviceSums* Connect(const NcclId& id, int rank, int size, const DeviceStream& place,
                    const std::function<void()>& wait) {
  return new NcclSums(id, rank, size, place, wait);
}

}  // namespace
}  // namespace carole::collectives

extern "C" __attribute__((visibility("default"))) const carole::collectives::NcclModule*
carole_nccl_module() {
  using namespace carole::collectives;
  static const NcclModule module = [] {
    int version = 0;
    CAROLE_NCCL(ncclGetVersion(&version));
    return NcclModule{version, MakeId, GpuOf, Connect};
  }();
  return &module;
}
