// Streams and events of CUDA as collectives/nccl uses them, on threads: a stream runs what it was
// given in order, later than it was given, so that a missing event shows as a wrong sum.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

using cudaError_t = int;
inline constexpr cudaError_t cudaSuccess = 0;
inline constexpr cudaError_t cudaErrorNotReady = 600;
inline constexpr cudaError_t cudaErrorStreamCaptureUnjoined = 904;
inline constexpr cudaError_t cudaErrorStreamCaptureIsolation = 905;
inline constexpr cudaError_t cudaErrorCapturedEvent = 907;
inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }

struct EmulatedCapture;
using EmulatedStream = struct CUstream_st;

struct CUstream_st {
  CUstream_st() : thread([this] { Run(); }) {}
  ~CUstream_st() {
    PushNow({});
    thread.join();
  }
  // To the graph that captures it, if there is one.
  inline void Push(std::function<void()> work);
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
      std::this_thread::sleep_for(std::chrono::microseconds(200));
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
  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.empty(); });
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::atomic<EmulatedCapture*> capture{nullptr};
  std::thread thread;
};
using cudaStream_t = EmulatedStream*;

using EmulatedEvent = struct CUevent_st;
struct CUevent_st {
  void WaitFor(uint64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed >= number; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  // Pushes what completes it.
  void RecordIn(EmulatedStream& stream) {
    const std::lock_guard lock(mutex);
    stream.PushNow([this, number = ++recorded] {
      const std::lock_guard in_stream(mutex);
      completed = number;
      changed.notify_all();
    });
  }
  void WaitIn(EmulatedStream& stream) {
    const std::lock_guard lock(mutex);
    stream.PushNow([this, number = recorded] { WaitFor(number); });
  }
  std::atomic<EmulatedCapture*> capture{nullptr};  // that recorded it last
  uint64_t recorded = 0, completed = 0;
};
using cudaEvent_t = EmulatedEvent*;

// What streams were given while they were captured, in order.
struct EmulatedCapture {
  struct Node {
    EmulatedStream* stream;
    std::function<void()> work;
    EmulatedEvent* records = nullptr;
    EmulatedEvent* waits = nullptr;
  };
  void Add(Node node) {
    const std::lock_guard lock(mutex);
    nodes.push_back(std::move(node));
  }
  // Whether each stream's end is waited for by another.
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
    std::map<EmulatedEvent*, EmulatedEvent*> events;  // of this launch; leaked: streams use them
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
inline void CUstream_st::Push(std::function<void()> work) {
  if (capture != nullptr) return capture.load()->Add({.stream = this, .work = std::move(work)});
  PushNow(std::move(work));
}

inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

inline cudaError_t cudaDeviceGetPCIBusId(char* place, int bytes, int device) {
  std::snprintf(place, static_cast<size_t>(bytes), "0000:%02x:00.0", device);
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
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
  return stream->IsIdle() ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->capture = stream->capture.load();
  if (event->capture != nullptr) {
    event->capture.load()->Add({.stream = stream, .work = {}, .records = event});
  } else {
    event->RecordIn(*stream);
  }
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->capture != nullptr) {
    stream->capture = event->capture.load();
    event->capture.load()->Add({.stream = stream, .work = {}, .waits = event});
    return cudaSuccess;
  }
  if (stream->capture != nullptr) return cudaErrorStreamCaptureIsolation;
  event->WaitIn(*stream);
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->capture != nullptr) return cudaErrorCapturedEvent;
  const std::lock_guard lock(event->mutex);
  return event->completed == event->recorded ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
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
  stream->capture = new EmulatedCapture;
  return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status =
      stream->capture == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->capture;
  const bool is_joined = (*graph)->IsJoined(stream);
  for (const auto& node : (*graph)->nodes) node.stream->capture = nullptr;
  stream->capture = nullptr;
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
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

enum cudaMemcpyKind { cudaMemcpyHostToDevice };
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream) {
  stream->Push([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream->Wait();
  return cudaSuccess;
}

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
};
// Memory that passes for a device's.
struct EmulatedMemory {
  std::mutex mutex;
  std::set<std::pair<const char*, const char*>> ranges;
};
inline EmulatedMemory& DeviceRanges() {
  static EmulatedMemory memory;
  return memory;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  EmulatedMemory& memory = DeviceRanges();
  const std::lock_guard lock(memory.mutex);
  attributes->type = cudaMemoryTypeUnregistered;
  for (const auto& [begin, end] : memory.ranges)
    if (begin <= p && p < end) attributes->type = cudaMemoryTypeDevice;
  return cudaSuccess;
}
