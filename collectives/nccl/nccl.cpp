// DeviceAllReduce over NCCL. All-reduces run on a stream of their own, in parallel to the computing
// stream. Two events for each ticket join the streams:
//
//   computing stream:  … record(ready) …                         … wait(done) …
//   NCCL's stream:                       wait(ready)  sum  record(done)
//
// The NCCL communicator is non-blocking: calls return ncclInProgress, and ncclCommGetAsyncError
// tells when they are complete. So a rank that waits for one that is gone can give up.
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

// Returns the kind of error, and the library's last error text.
std::string Explain(ncclResult_t status) {
  const char* last = ncclGetLastError(nullptr);
  return fmt::format("{}{}{}; NCCL_DEBUG=WARN says more", ncclGetErrorString(status),
                     last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last);
}

void CheckNccl(ncclResult_t status, const char* call) {
  if (IsFine(status)) return;
  const std::string text = fmt::format("[nccl] {}: {}", call, Explain(status));
  // Not CommError, for which a batch script starts the job again: that would fail in the same way.
  if (status == ncclInvalidUsage || status == ncclInvalidArgument) throw ConfigError(text);
  throw CommError(text);
}
#define CAROLE_NCCL(call) CheckNccl((call), #call)

constexpr ncclDataType_t TypeOf(float) { return ncclFloat32; }
constexpr ncclDataType_t TypeOf(double) { return ncclFloat64; }

class NcclAllReduce final : public DeviceAllReduce {
 public:
  NcclAllReduce(const NcclId& id, int rank, int size, const DeviceStream& device,
                const std::function<void()>& wait)
      : device_(device.device), compute_(static_cast<cudaStream_t>(device.stream)) {
    CAROLE_CUDA(cudaSetDevice(device_));
    int least = 0, greatest = 0;
    CAROLE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    // The highest priority. Else NCCL's few blocks would wait for the rest of backward.
    CAROLE_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    for (Slot& slot : slots_) slot = MakeSlot();
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CAROLE_NCCL(ncclCommInitRankConfig(&comm_, size, unique, rank, &config));
    WaitUntilDone("ncclCommInitRankConfig", wait);
    WarmUpEachSize(wait);
  }
  NcclAllReduce(const NcclAllReduce&) = delete;
  NcclAllReduce& operator=(const NcclAllReduce&) = delete;

  // Waits a short time for what is in flight, because other ranks may be gone. Captured graphs with
  // all-reduces must have been destroyed before: ncclCommAbort() would wait for them.
  ~NcclAllReduce() override {
    if (cudaSetDevice(device_) != cudaSuccess) return;
    const auto start = Clock::now();
    while (cudaStreamQuery(stream_) == cudaErrorNotReady && Clock::now() - start < kLastWait)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ncclCommAbort(comm_);
    for (const Slot& slot : slots_) DestroySlot(slot);
    for (const Slot& slot : captured_slots_) DestroySlot(slot);
    cudaStreamDestroy(stream_);
  }

  // Sets the device, because any thread may call this, and the query would create a context on the
  // thread's current device.
  bool Holds(const void* memory) const override {
    CAROLE_CUDA(cudaSetDevice(device_));
    cudaPointerAttributes attributes{};
    CAROLE_CUDA(cudaPointerGetAttributes(&attributes, memory));
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  }

  Ticket Mark() override {
    is_capturing_ = IsCapturing();
    const Ticket ticket = is_capturing_ ? AddCapturedSlot() : NextTicket();
    CAROLE_CUDA(cudaEventRecord(SlotOf(ticket).ready, compute_));
    return ticket;
  }

  void Enqueue(Ticket ticket, std::span<float> data) override { EnqueueSum(ticket, data); }
  void Enqueue(Ticket ticket, std::span<double> data) override { EnqueueSum(ticket, data); }

  void Join(Ticket ticket) override {
    CAROLE_CUDA(cudaStreamWaitEvent(compute_, SlotOf(ticket).done, 0));
  }

  bool IsCaptured(Ticket ticket) const override { return ticket >= kCapturedBit; }

  void NoteReplay() override {
    is_capturing_ = false;
    const Slot slot = SlotOf(NextTicket());
    CAROLE_CUDA(cudaEventRecord(slot.done, compute_));
    const std::lock_guard lock(mutex_);
    in_flight_.push_back({slot.done, Clock::now()});
  }

  std::string FindProblem(double deadline_seconds) override {
    if (const ncclResult_t state = AsyncError(); !IsFine(state)) return Explain(state);
    // Without this call, a thread's first query would create a context on GPU 0. The call also
    // returns the errors of kernels that failed.
    if (const cudaError_t error = cudaSetDevice(device_); error != cudaSuccess)
      return cudaGetErrorString(error);
    const std::optional<Clock::time_point> oldest = FindOldest();
    if (!oldest) return "";
    const std::chrono::duration<double> age = Clock::now() - *oldest;
    if (age.count() < deadline_seconds) return "";
    return fmt::format(
        "an all-reduce is not complete after {:.0f} s: a GPU or the network between GPUs does not "
        "answer",
        age.count());
  }

 private:
  static constexpr auto kLastWait = std::chrono::seconds(2);
  static constexpr Ticket kSlots = 256;  // more than the all-reduces that are ever in flight
  static constexpr Ticket kCapturedBit = Ticket{1} << 63;
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

  bool IsCapturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CAROLE_CUDA(cudaStreamIsCapturing(compute_, &status));
    return status != cudaStreamCaptureStatusNone;
  }
  // Events of a capture belong to the captured graph: no other code may query them or record them
  // again. So they get slots of their own.
  Ticket AddCapturedSlot() {
    const Slot slot = MakeSlot();
    const std::lock_guard lock(mutex_);
    captured_slots_.push_back(slot);
    return kCapturedBit | (captured_slots_.size() - 1);
  }
  Ticket NextTicket() {
    const Ticket ticket = next_++;
    if (ticket < kSlots) return ticket;
    const cudaEvent_t done = SlotOf(ticket).done;  // of the all-reduce kSlots ago
    CAROLE_CUDA(cudaEventSynchronize(done));
    // Once the event is recorded again, it would look as if the old all-reduce were still running.
    const std::lock_guard lock(mutex_);
    std::erase_if(in_flight_, [&](const InFlight& sum) { return sum.done == done; });
    return ticket;
  }
  Slot SlotOf(Ticket ticket) {
    if (!IsCaptured(ticket)) return slots_[ticket % kSlots];
    const std::lock_guard lock(mutex_);
    return captured_slots_[ticket & ~kCapturedBit];
  }

  // Returns when the oldest all-reduce in flight started. During a capture it does not query
  // events, because that would invalidate a capture by this thread.
  std::optional<Clock::time_point> FindOldest() {
    const std::lock_guard lock(mutex_);
    if (is_capturing_) return enqueuing_since_;
    while (!in_flight_.empty() && cudaEventQuery(in_flight_.front().done) == cudaSuccess)
      in_flight_.pop_front();
    return in_flight_.empty() ? enqueuing_since_ : in_flight_.front().start;
  }

  ncclResult_t AsyncError() {
    const std::lock_guard lock(mutex_);
    ncclResult_t state = ncclSuccess;
    const ncclResult_t status = ncclCommGetAsyncError(comm_, &state);
    return status == ncclSuccess ? state : status;
  }

  // Returns when the previous NCCL calls are complete on this rank. Calls `wait` meanwhile, which
  // throws to give up.
  void WaitUntilDone(const char* call, const std::function<void()>& wait) {
    ncclResult_t state = ncclInProgress;
    while ((state = AsyncError()) == ncclInProgress) {
      wait();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    CheckNccl(state, call);
  }

  // Runs one all-reduce of each size class. NCCL connects ranks, and allocates memory for it, in
  // the first all-reduce of a size that uses another algorithm. Doing so here has two advantages:
  // the memory is taken before others ask how much is free, and ranks that cannot reach each other
  // are detected.
  void WarmUpEachSize(const std::function<void()>& wait) {
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
    CAROLE_CUDA(cudaFree(memory));  // skipped after an error, because it would wait for the sums
  }

  // Returns when the all-reduce is in the stream, so that later calls come after it.
  template <typename T>
  void AllReduce(std::span<T> data, const std::function<void()>& wait) {
    {
      const std::lock_guard lock(mutex_);
      CAROLE_NCCL(ncclAllReduce(data.data(), data.data(), data.size(), TypeOf(T{}), ncclSum, comm_,
                                stream_));
    }
    WaitUntilDone("ncclAllReduce", wait);
  }

  template <typename T>
  void EnqueueSum(Ticket ticket, std::span<T> data) {
    CAROLE_CUDA(cudaSetDevice(device_));  // for this thread
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
    if (!IsCaptured(ticket)) in_flight_.push_back({slot.done, Clock::now()});
  }

  const int device_;
  const cudaStream_t compute_;
  cudaStream_t stream_ = nullptr;
  Slot slots_[kSlots];
  std::deque<Slot> captured_slots_;
  Ticket next_ = 0;                        // used by the computing thread only
  std::atomic<bool> is_capturing_{false};  // whether the computing stream is being captured
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  std::deque<InFlight> in_flight_;
  std::optional<Clock::time_point> enqueuing_since_;
};

NcclId MakeNcclId() {
  ncclUniqueId unique;
  CAROLE_NCCL(ncclGetUniqueId(&unique));
  NcclId id;
  std::memcpy(id.data(), &unique, id.size());
  return id;
}

std::string PciBusId(int device) {
  char id[32] = {};
  CAROLE_CUDA(cudaDeviceGetPCIBusId(id, sizeof id, device));
  return id;
}

DeviceAllReduce* Connect(const NcclId& id, int rank, int size, const DeviceStream& device,
                         const std::function<void()>& wait) {
  return new NcclAllReduce(id, rank, size, device, wait);
}

}  // namespace
}  // namespace carole::collectives

extern "C" __attribute__((visibility("default"))) const carole::collectives::NcclModule*
carole_nccl_module() {
  using namespace carole::collectives;
  static const NcclModule module = [] {
    int version = 0;
    CAROLE_NCCL(ncclGetVersion(&version));
    return NcclModule{version, MakeNcclId, PciBusId, Connect};
  }();
  return &module;
}
