// Emulated streams, events and graphs of CUDA; part of cuda_runtime.h. An EmulatedStream is a
// thread that runs its work in order, but later than it was enqueued: so a missing event leads to a
// wrong result.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

using cudaError_t = int;
inline constexpr cudaError_t cudaSuccess = 0, cudaErrorMemoryAllocation = 2;
inline constexpr cudaError_t cudaErrorNoDevice = 100;
inline constexpr cudaError_t cudaErrorInvalidConfiguration = 9;
inline constexpr cudaError_t cudaErrorInvalidResourceHandle = 400, cudaErrorNotReady = 600;
inline constexpr cudaError_t cudaErrorStreamCaptureUnsupported = 900;
inline constexpr cudaError_t cudaErrorStreamCaptureInvalidated = 901;
inline constexpr cudaError_t cudaErrorStreamCaptureUnjoined = 904;
inline constexpr cudaError_t cudaErrorStreamCaptureIsolation = 905;
inline constexpr cudaError_t cudaErrorCapturedEvent = 907;
inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }
inline const char* cudaGetErrorName(cudaError_t error) {
  return error == 700 ? "cudaErrorIllegalAddress" : "emulated";
}

// The error that every call returns after a kernel has failed. Tests set it.
inline std::atomic<cudaError_t>& EmulatedStickyError() {
  static std::atomic<cudaError_t> error = cudaSuccess;
  return error;
}

// Whether calls of CUDA block, as they do while another thread holds the driver's lock. The lock
// ends after 30 s, so that a test whose process does not end fails. Tests set it.
inline std::atomic<bool>& EmulatedDriverIsLocked() {
  static std::atomic<bool> is_locked = false;
  return is_locked;
}
inline void AwaitEmulatedDriver() {
  for (int tenths = 0; EmulatedDriverIsLocked() && tenths < 300; ++tenths)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EmulatedDriverIsLocked() = false;
}

// Whether this thread captures: then it may neither allocate nor wait. Querying an event also
// breaks the capture.
inline thread_local bool thread_captures = false, thread_breaks_capture = false;

// The current device of this thread. As in CUDA, each thread starts with device 0.
inline thread_local int thread_device = 0;
inline std::atomic<int>& EmulatedDeviceOfProcess() {
  static std::atomic<int> device = 0;  // the last choice of any thread: a process uses one device
  return device;
}
inline cudaError_t cudaSetDevice(int device) {
  AwaitEmulatedDriver();
  EmulatedDeviceOfProcess() = thread_device = device;
  return EmulatedStickyError();
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = thread_device;
  return cudaSuccess;
}

// Whether the clock of emulated GPUs counts work instead of reading the clock of the machine. Then
// a stream's clock advances by `pause_us` for each work, and by the time that emulated NCCL says
// for a sum. If the stream waits for an event or for other ranks, its clock becomes the latest one
// of all. So the times do not depend on the machine's load. Tests set it.
inline std::atomic<bool>& EmulatedClockCountsWork() {
  static std::atomic<bool> counts_work = false;
  return counts_work;
}
inline thread_local uint64_t stream_clock = 1;  // in nanoseconds; each stream is a thread
inline uint64_t EmulatedNanoseconds() {
  if (EmulatedClockCountsWork()) return stream_clock;
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(now.count());
}

// A stream. Kernels and copies in the null stream run at once.
struct CUstream_st {
  const int device = thread_device;  // kernels of threads with another device are refused
  virtual ~CUstream_st() = default;
  virtual void Push(std::function<void()> work) = 0;
  virtual void Wait() = 0;  // until all work is done
};
using cudaStream_t = CUstream_st*;

struct EmulatedCapture;

struct EmulatedStream : CUstream_st {
  EmulatedStream() : thread([this] { Run(); }) {}
  ~EmulatedStream() override {
    PushNow({});
    thread.join();
  }
  // Adds work to the graph that captures this stream, if there is one, else to the queue.
  inline void Push(std::function<void()> work) override;
  void PushNow(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  void Run() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !queue.empty(); });
      const std::function<void()> work = queue.front();
      lock.unlock();
      if (!work) return;
      const std::chrono::microseconds pause(pause_us);
      std::this_thread::sleep_for(pause);
      stream_clock += static_cast<uint64_t>(std::chrono::nanoseconds(pause).count());
      work();
      lock.lock();
      queue.pop_front();
      changed.notify_all();
    }
  }
  bool IsIdle() {
    const std::lock_guard lock(mutex);
    return queue.empty();
  }
  void Wait() override {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.empty(); });
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::atomic<int> pause_us{200};  // before each work; a test can make a GPU slow
  std::atomic<EmulatedCapture*> capture{nullptr};
  std::thread thread;
};
inline EmulatedStream* Emulated(cudaStream_t stream) {
  return static_cast<EmulatedStream*>(stream);
}

using EmulatedEvent = struct CUevent_st;
struct CUevent_st {
  const int device = thread_device;
  void WaitFor(uint64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed >= number; });
    stream_clock = std::max(stream_clock, time);
  }
  std::mutex mutex;
  std::condition_variable changed;
  // Enqueues work in the stream that completes the event.
  void RecordIn(EmulatedStream& stream) {
    const std::lock_guard lock(mutex);
    stream.PushNow([this, number = ++recorded] {
      const std::lock_guard in_stream(mutex);
      completed = number;
      time = EmulatedNanoseconds();
      changed.notify_all();
    });
  }
  void WaitIn(EmulatedStream& stream) {
    const std::lock_guard lock(mutex);
    stream.PushNow([this, number = recorded] { WaitFor(number); });
  }
  std::atomic<EmulatedCapture*> capture{nullptr};  // the capture that recorded it last
  uint64_t recorded = 0, completed = 0;
  uint64_t time = 0;  // of the last completion, in nanoseconds
};
using cudaEvent_t = EmulatedEvent*;

// A capture, and later the graph: the work that streams got while they were captured, in order.
struct EmulatedCapture {
  struct Node {
    EmulatedStream* stream;
    std::function<void()> work;
    EmulatedEvent* records = nullptr;
    EmulatedEvent* waits = nullptr;
  };
  // CUDA graphs are not thread-safe. The pause makes it likely that a violation is detected.
  void Add(Node node) {
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock.owns_lock()) {
      std::fputs("emulated GPU: two threads add to one graph at the same time\n", stderr);
      std::abort();
    }
    nodes.push_back(std::move(node));
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  // Whether the end of each stream other than `origin` is waited for by another stream.
  bool IsJoined(const EmulatedStream* origin) const {
    std::map<const EmulatedStream*, EmulatedEvent*> open;
    for (const Node& node : nodes) {
      if (node.waits != nullptr)
        std::erase_if(open, [&](auto& o) { return o.second == node.waits; });
      if (node.stream != origin) open[node.stream] = node.records;
    }
    return open.empty();
  }
  void Launch() {
    // The events of this launch. They are leaked, since streams still use them.
    std::map<EmulatedEvent*, EmulatedEvent*> events;
    for (const Node& node : nodes) {
      if (node.work) node.stream->PushNow(node.work);
      if (node.waits != nullptr) events.at(node.waits)->WaitIn(*node.stream);
      if (node.records != nullptr)
        (events[node.records] = new EmulatedEvent)->RecordIn(*node.stream);
    }
  }
  std::mutex mutex;
  std::vector<Node> nodes;
};
inline void EmulatedStream::Push(std::function<void()> work) {
  if (capture != nullptr) return capture.load()->Add({.stream = this, .work = std::move(work)});
  PushNow(std::move(work));
}

inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;

// CAROLE_EMULATED_BUS_ID sets the id of all GPUs, which slices of one GPU (MIG) share.
inline cudaError_t cudaDeviceGetPCIBusId(char* place, int bytes, int device) {
  if (const char* shared = std::getenv("CAROLE_EMULATED_BUS_ID")) {
    std::snprintf(place, static_cast<size_t>(bytes), "%s", shared);
    return cudaSuccess;
  }
  std::snprintf(place, static_cast<size_t>(bytes), "0000:%02x:00.0", device);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Emulated(stream)->IsIdle() ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::scoped_lock lock(begin->mutex, end->mutex);
  *milliseconds = static_cast<float>(end->time - begin->time) * 1e-6F;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  AwaitEmulatedDriver();
  if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
  event->capture = Emulated(stream)->capture.load();
  if (event->capture != nullptr) {
    event->capture.load()->Add({.stream = Emulated(stream), .work = {}, .records = event});
  } else {
    event->RecordIn(*Emulated(stream));
  }
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  EmulatedStream& waiting = *Emulated(stream);
  if (event->capture != nullptr) {
    waiting.capture = event->capture.load();
    event->capture.load()->Add({.stream = &waiting, .work = {}, .waits = event});
    return cudaSuccess;
  }
  if (waiting.capture != nullptr) return cudaErrorStreamCaptureIsolation;
  event->WaitIn(waiting);
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
  AwaitEmulatedDriver();
  if (event->capture != nullptr) return cudaErrorCapturedEvent;
  if (thread_captures) {
    thread_breaks_capture = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  const std::lock_guard lock(event->mutex);
  return event->completed == event->recorded ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (thread_captures) return cudaErrorStreamCaptureUnsupported;
  if (event->capture != nullptr) return cudaErrorCapturedEvent;
  uint64_t number = 0;
  {
    const std::lock_guard lock(event->mutex);
    number = event->recorded;
  }
  event->WaitFor(number);
  return cudaSuccess;
}

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
using cudaGraph_t = EmulatedCapture*;
using cudaGraphExec_t = EmulatedCapture*;
inline constexpr unsigned cudaGraphInstantiateFlagUseNodePriority = 8;

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Emulated(stream)->capture = new EmulatedCapture;
  thread_captures = true;
  return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = Emulated(stream)->capture == nullptr ? cudaStreamCaptureStatusNone
                                                 : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  EmulatedStream* const origin = Emulated(stream);
  *graph = origin->capture;
  const bool is_joined = (*graph)->IsJoined(origin);
  for (const auto& node : (*graph)->nodes) node.stream->capture = nullptr;
  origin->capture = nullptr;
  thread_captures = false;
  if (std::exchange(thread_breaks_capture, false)) return cudaErrorStreamCaptureInvalidated;
  return is_joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned) {
  *exec = graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  exec->Launch();
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

// Enqueues work in a stream; without a stream, runs it at once.
inline void EmulatedPush(cudaStream_t stream, std::function<void()> work) {
  stream == nullptr ? work() : stream->Push(std::move(work));
}

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream) {
  EmulatedPush(stream, [=] { std::memmove(to, from, bytes); });
  return EmulatedStickyError();
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (stream != nullptr && stream->device != thread_device) return cudaErrorInvalidResourceHandle;
  EmulatedPush(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (thread_captures) return cudaErrorStreamCaptureUnsupported;
  if (stream != nullptr) stream->Wait();
  return EmulatedStickyError();
}

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
};
// The ranges of memory that count as device memory.
struct EmulatedMemory {
  void Add(const void* memory, size_t bytes) {
    const std::lock_guard lock(mutex);
    ranges[static_cast<const char*>(memory)] = bytes;
  }
  void Remove(const void* memory) {
    const std::lock_guard lock(mutex);
    ranges.erase(static_cast<const char*>(memory));
  }
  bool Holds(const void* memory) {
    const std::lock_guard lock(mutex);
    const auto next = ranges.upper_bound(static_cast<const char*>(memory));
    if (next == ranges.begin()) return false;
    const auto& [begin, bytes] = *std::prev(next);
    return memory < begin + bytes;
  }
  size_t Bytes() {
    const std::lock_guard lock(mutex);
    size_t sum = 0;
    for (const auto& [begin, bytes] : ranges) sum += bytes;
    return sum;
  }
  std::mutex mutex;
  std::map<const char*, size_t> ranges;  // first byte -> number of bytes
};
inline EmulatedMemory& DeviceRanges() {
  static EmulatedMemory memory;
  return memory;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  if (EmulatedStickyError() != cudaSuccess) return EmulatedStickyError();
  attributes->type = DeviceRanges().Holds(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
