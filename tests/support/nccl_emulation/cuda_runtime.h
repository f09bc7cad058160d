// Streams and events of CUDA as collectives/nccl uses them, on threads: a stream runs what it was
// given in order, later than it was given, so that a missing event shows as a wrong sum.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

using cudaError_t = int;
inline constexpr cudaError_t cudaSuccess = 0;
inline constexpr cudaError_t cudaErrorNotReady = 600;
inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }

struct EmulatedStream {
  EmulatedStream() : thread([this] { Run(); }) {}
  ~EmulatedStream() {
    Push({});
    thread.join();
  }
  void Push(std::function<void()> work) {
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
  std::thread thread;
};
using cudaStream_t = EmulatedStream*;

struct EmulatedEvent {
  void WaitFor(uint64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed >= number; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, completed = 0;
};
using cudaEvent_t = EmulatedEvent*;

inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new EmulatedStream;
  return cudaSuccess;
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
  const std::lock_guard lock(event->mutex);
  stream->Push([event, number = ++event->recorded] {
    const std::lock_guard in_stream(event->mutex);
    event->completed = number;
    event->changed.notify_all();
  });
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(event->mutex);
  stream->Push([event, number = event->recorded] { event->WaitFor(number); });
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  return event->completed == event->recorded ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(event->mutex);
    number = event->recorded;
  }
  event->WaitFor(number);
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
