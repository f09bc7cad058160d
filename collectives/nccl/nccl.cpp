// DeviceAllReduce over NCCL. All-reduces run on a stream of their own, in parallel to the computing
// stream. Two events for each ticket join the streams:
//
//   computing stream:  … record(ready) …                         … wait(done) …
//   NCCL's stream:                       wait(ready)  sum  record(done)
//
// An NCCL communicator runs its all-reduces one after the other. The computing stream waits at once
// for sums of batch norm, so these would wait for buckets of gradients that are in flight. They get
// a communicator and a stream of their own, which we call a lane. All ranks enqueue in the same
// order, and sums of both lanes fit on a GPU at the same time, so the lanes do not block each
// other.
//
// Gradients may travel as bf16, which halves their bytes (Tag::may_round). Then a sum takes three
// operations, all in NCCL's stream, so that they do not delay the computing stream:
//
//   NCCL's stream:  wait(ready)  round to `wire`  sum `wire`  widen to fp32  record(done)
//
// A lane runs one sum after the other, so all of its sums share one buffer `wire`. Larger ranges
// are summed in pieces.
//
// NCCL chooses the order in which it adds. In tree order, a lane has an NCCL communicator for each
// level of the tree, which connects two ranks. Then a sum is one all-reduce for each level
// (MakeLanes() in loader.cpp).
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
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/nccl/bf16_wire.h"
#include "collectives/nccl/registered_memory.h"
#include "collectives/nccl/status.h"

namespace carole::collectives {
namespace {

using Clock = std::chrono::steady_clock;

static_assert(sizeof(ncclUniqueId) == kNcclIdBytes);

constexpr ncclDataType_t TypeOf(float) { return ncclFloat32; }
constexpr ncclDataType_t TypeOf(double) { return ncclFloat64; }
constexpr ncclDataType_t TypeOf(Bf16) { return ncclBfloat16; }

class NcclAllReduce final : public DeviceAllReduce {
 public:
  NcclAllReduce(std::span<const NcclLane> lanes, const DeviceStream& device,
                const std::function<void()>& wait)
      : device_(device.device),
        compute_(static_cast<cudaStream_t>(device.stream)),
        lanes_(lanes.size()) {
    CAROLE_CUDA(cudaSetDevice(device_));
    for (Slot& slot : slots_) slot = MakeSlot();
    for (size_t i = 0; i < lanes.size(); ++i) ConnectLane(lanes_[i], i > 0, lanes[i], wait);
  }
  NcclAllReduce(const NcclAllReduce&) = delete;
  NcclAllReduce& operator=(const NcclAllReduce&) = delete;

  // Waits a short time for what is in flight, because other ranks may be gone. Captured graphs with
  // all-reduces must have been destroyed before: ncclCommAbort() would wait for them.
  ~NcclAllReduce() override {
    if (cudaSetDevice(device_) != cudaSuccess) return;
    const auto start = Clock::now();
    for (const Lane& lane : lanes_) {
      while (cudaStreamQuery(lane.stream) == cudaErrorNotReady && Clock::now() - start < kLastWait)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const Lane& lane : lanes_) {
      if (lane.wire != nullptr) lane.wire->Deregister();
      for (ncclComm_t comm : lane.comms) ncclCommAbort(comm);
    }
    // Waits for the lane's stream, in which a sum may wait for one of another lane.
    for (Lane& lane : lanes_) lane.wire.reset();
    for (const Slot& slot : slots_) DestroySlot(slot);
    for (const Slot& slot : captured_slots_) DestroySlot(slot);
    for (const Lane& lane : lanes_) cudaStreamDestroy(lane.stream);
  }

  // Sets the device, because any thread may call this, and the query would create a context on the
  // thread's current device.
  bool Holds(const void* memory) const override {
    CAROLE_CUDA(cudaSetDevice(device_));
    cudaPointerAttributes attributes{};
    CAROLE_CUDA(cudaPointerGetAttributes(&attributes, memory));
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  }

  Ticket Mark(bool is_urgent) override {
    is_capturing_ = IsCapturing();
    const Ticket ticket =
        (is_capturing_ ? AddCapturedSlot() : NextTicket()) | (is_urgent ? kUrgentBit : 0);
    CAROLE_CUDA(cudaEventRecord(SlotOf(ticket).ready, compute_));
    return ticket;
  }

  void Enqueue(Ticket ticket, std::span<float> data, DType wire) override {
    EnqueueSum(ticket, [&](Lane& lane) {
      wire == DType::kBF16 ? SumAsBf16(lane, data) : AllReduce(lane, data);
    });
  }
  void Enqueue(Ticket ticket, std::span<double> data) override {
    EnqueueSum(ticket, [&](const Lane& lane) { AllReduce(lane, data); });
  }

  void Join(Ticket ticket) override {
    CAROLE_CUDA(cudaStreamWaitEvent(compute_, SlotOf(ticket).done, 0));
  }

  // In tree order, only the sums of the first level find the memory registered.
  std::unique_ptr<CommArena> AllocateArena(size_t bytes) override {
    CAROLE_CUDA(cudaSetDevice(device_));
    const std::lock_guard lock(mutex_);
    return std::make_unique<RegisteredMemory>(lanes_.front().comms.front(), compute_, bytes);
  }

  bool IsCaptured(Ticket ticket) const override { return (ticket & kCapturedBit) != 0; }

  void NoteReplay() override {
    is_capturing_ = false;
    const Slot slot = SlotOf(NextTicket());
    CAROLE_CUDA(cudaEventRecord(slot.done, compute_));
    const std::lock_guard lock(mutex_);
    in_flight_.push_back({slot.done, Clock::now()});
  }

  void SetObserver(const Observer& observer) override { observer_ = observer; }

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
  static constexpr size_t kWireValues = size_t{8} << 20;  // 16 MB, at which latency is negligible
  static constexpr Ticket kCapturedBit = Ticket{1} << 63, kUrgentBit = Ticket{1} << 62;
  struct Slot {
    cudaEvent_t ready = nullptr, done = nullptr;
  };
  struct Lane {
    std::vector<ncclComm_t> comms;  // of each group; null until it is connected
    cudaStream_t stream = nullptr;
    std::unique_ptr<RegisteredMemory> wire;  // kWireValues values; null before the first of them
  };
  struct InFlight {
    cudaEvent_t done;
    Clock::time_point start;
  };

  void ConnectLane(Lane& lane, bool is_urgent, const NcclLane& groups,
                   const std::function<void()>& wait) {
    int least = 0, greatest = 0;
    CAROLE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    // The highest priority. Else NCCL's few blocks would wait for the rest of backward.
    CAROLE_CUDA(cudaStreamCreateWithPriority(&lane.stream, cudaStreamNonBlocking, greatest));
    lane.comms.resize(groups.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      ncclUniqueId unique;
      std::memcpy(&unique, groups[i].id.data(), sizeof unique);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      if (is_urgent) config.maxCTAs = 2;  // small sums; each block more would take device memory
      CAROLE_NCCL(
          ncclCommInitRankConfig(&lane.comms[i], groups[i].size, unique, groups[i].rank, &config));
      WaitUntilDone("ncclCommInitRankConfig", wait);
    }
    static constexpr size_t kSizes[] = {2, size_t{8} << 10, size_t{256} << 10, size_t{16} << 20};
    WarmUpEachSize(lane, std::span(kSizes).first(is_urgent ? 2 : std::size(kSizes)), wait);
  }

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
    return captured_slots_[ticket & ~(kCapturedBit | kUrgentBit)];
  }

  // Returns when the oldest all-reduce in flight started. During a capture it does not query
  // events, because that would invalidate a capture by this thread.
  std::optional<Clock::time_point> FindOldest() {
    const std::lock_guard lock(mutex_);
    if (is_capturing_) return enqueuing_since_;
    while (!in_flight_.empty() && cudaEventQuery(in_flight_.front().done) == cudaSuccess) {
      in_flight_.pop_front();
      // The next one may have been enqueued a whole step earlier. It could not begin before.
      if (!in_flight_.empty()) in_flight_.front().start = Clock::now();
    }
    return in_flight_.empty() ? enqueuing_since_ : in_flight_.front().start;
  }

  ncclResult_t AsyncError() {
    const std::lock_guard lock(mutex_);
    for (const Lane& lane : lanes_) {
      for (ncclComm_t comm : lane.comms) {
        if (comm == nullptr) continue;  // connected later
        ncclResult_t state = ncclSuccess;
        const ncclResult_t status = ncclCommGetAsyncError(comm, &state);
        if (status != ncclSuccess) return status;
        if (state != ncclSuccess) return state;
      }
    }
    return ncclSuccess;
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
  void WarmUpEachSize(const Lane& lane, std::span<const size_t> sizes,
                      const std::function<void()>& wait) {
    const size_t bytes = std::ranges::max(sizes) * sizeof(float);
    void* memory = nullptr;
    CAROLE_CUDA(cudaMalloc(&memory, bytes));
    CAROLE_CUDA(cudaMemsetAsync(memory, 0, bytes, lane.stream));
    for (size_t size : sizes) AllReduce(lane, std::span(static_cast<float*>(memory), size), wait);
    AllReduce(lane, std::span(static_cast<double*>(memory), 1), wait);
    while (cudaStreamQuery(lane.stream) == cudaErrorNotReady) {
      wait();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    CAROLE_CUDA(cudaStreamSynchronize(lane.stream));
    CAROLE_CUDA(cudaFree(memory));  // skipped after an error, because it would wait for the sums
  }

  // Returns when the all-reduce is in the stream, so that later calls come after it. `wait`: see
  // WaitUntilDone().
  template <typename T>
  void AllReduce(
      const Lane& lane, std::span<T> data, const std::function<void()>& wait = [] {}) {
    for (ncclComm_t comm : lane.comms) {
      {
        const std::lock_guard lock(mutex_);
        CAROLE_NCCL(ncclAllReduce(data.data(), data.data(), data.size(), TypeOf(T{}), ncclSum, comm,
                                  lane.stream));
      }
      WaitUntilDone("ncclAllReduce", wait);
    }
  }

  // Sums fp32 that travels as bf16. NCCL adds bf16 values, so each of its additions rounds.
  void SumAsBf16(Lane& lane, std::span<float> data) {
    if (lane.wire == nullptr) {
      const std::lock_guard lock(mutex_);
      lane.wire = std::make_unique<RegisteredMemory>(lane.comms.front(), lane.stream,
                                                     kWireValues * sizeof(Bf16));
    }
    auto* const wire = reinterpret_cast<Bf16*>(lane.wire->data());
    for (; !data.empty(); data = data.subspan(std::min(data.size(), kWireValues))) {
      const std::span<float> piece = data.first(std::min(data.size(), kWireValues));
      CAROLE_CUDA(RoundToWire(piece.data(), wire, piece.size(), lane.stream));
      AllReduce(lane, std::span(wire, piece.size()));
      CAROLE_CUDA(WidenFromWire(wire, piece.data(), piece.size(), lane.stream));
    }
  }

  // Calls `sum`, which enqueues a sum in the lane of the ticket, between its two events.
  template <typename Sum>
  void EnqueueSum(Ticket ticket, const Sum& sum) {
    CAROLE_CUDA(cudaSetDevice(device_));  // for this thread
    const Slot slot = SlotOf(ticket);
    Lane& lane = (ticket & kUrgentBit) != 0 ? lanes_.back() : lanes_.front();
    CAROLE_CUDA(cudaStreamWaitEvent(lane.stream, slot.ready, 0));
    {
      const std::lock_guard lock(mutex_);
      enqueuing_since_ = Clock::now();
    }
    if (observer_) observer_(lane.stream, false);
    sum(lane);
    if (observer_) observer_(lane.stream, true);
    CAROLE_CUDA(cudaEventRecord(slot.done, lane.stream));
    const std::lock_guard lock(mutex_);
    enqueuing_since_.reset();
    if (!IsCaptured(ticket)) in_flight_.push_back({slot.done, Clock::now()});
  }

  const int device_;
  const cudaStream_t compute_;
  std::vector<Lane> lanes_;  // the second one, if there is one, is for urgent sums
  Slot slots_[kSlots];
  std::deque<Slot> captured_slots_;
  Observer observer_;
  Ticket next_ = 0;                        // used by the computing thread only
  std::atomic<bool> is_capturing_{false};  // whether the computing stream is being captured
  std::mutex mutex_;
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

std::string UuidOf(int device) {
  cudaDeviceProp properties;
  CAROLE_CUDA(cudaGetDeviceProperties(&properties, device));
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", begins_group ? "-" : "",
                        static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return text;
}

DeviceAllReduce* Connect(std::span<const NcclLane> lanes, const DeviceStream& device,
                         const std::function<void()>& wait) {
  return new NcclAllReduce(lanes, device, wait);
}

}  // namespace
}  // namespace carole::collectives

extern "C" __attribute__((visibility("default"))) const carole::collectives::NcclModule*
carole_nccl_module() {
  using namespace carole::collectives;
  static const NcclModule module = [] {
    int version = 0;
    CAROLE_NCCL(ncclGetVersion(&version));
    return NcclModule{version, MakeNcclId, UuidOf, Connect};
  }();
  return &module;
}
