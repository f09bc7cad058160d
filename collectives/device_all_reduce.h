// The device part of a communicator: all-reduce of memory that lies on a device (a GPU), and replay
// of captured device work.
//
// The engine keeps operations in order, compares headers and enforces deadlines. An implementation
// only moves data, in the order of a stream, so the host never waits for the data. An all-reduce
// takes three calls:
//
//   computing thread:  Ticket t = device.Mark(…);    // `data` is final at this point of the stream
//   engine's thread:   device.Enqueue(t, data, …);   // all ranks have arrived; enqueues the sum
//   computing thread:  device.Join(t);               // later work of the stream sees the sum
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "src/core/dtype.h"

namespace carole::collectives {

class DeviceAllReduce {
 public:
  using Ticket = uint64_t;
  virtual ~DeviceAllReduce() = default;

  // Returns whether `memory` is on the device. If so, its all-reduces must use this object.
  virtual bool Holds(const void* memory) const = 0;

  // Returns zeroed device memory whose all-reduces are fastest. Destroy it before this object, and
  // after captured work that uses it. Throws DeviceMemoryError if there is too little memory.
  virtual std::unique_ptr<CommArena> AllocateArena(size_t bytes) = 0;

  // Each ticket takes these three calls once, in this order. Tickets are enqueued in the order of
  // Mark(). `is_urgent`: see Tag. `wire` is the type in which the values travel, kF32 or kBF16. As
  // kBF16 they are also added as bf16, and each addition rounds. Enqueue() throws DeviceError,
  // CommError or ConfigError if the library fails.
  virtual Ticket Mark(bool is_urgent) = 0;
  virtual void Enqueue(Ticket ticket, std::span<float> data, DType wire) = 0;
  virtual void Enqueue(Ticket ticket, std::span<double> data) = 0;
  virtual void Join(Ticket ticket) = 0;

  // Returns whether the stream was being captured at Mark(). Then Enqueue() adds to the captured
  // work instead of running anything.
  virtual bool IsCaptured(Ticket ticket) const = 0;

  // Tells that captured all-reduces have been enqueued by a replay. The deadline applies to them as
  // to others. Tickets may be marked during a capture; they are invalid after it.
  virtual void NoteReplay() = 0;

  // Returns why all-reduces will not complete: an error of the library, or one that has been in
  // flight for longer than the deadline. Returns "" if all is well. Callable from any thread.
  virtual std::string FindProblem(double deadline_seconds) = 0;

  // From now on, Enqueue() calls `observer` right before and right after it puts a sum into
  // `stream`, which is a cudaStream_t. The default is for implementations without streams.
  using Observer = std::function<void(void* stream, bool is_end)>;
  virtual void SetObserver(const Observer& /*observer*/) {}
};

// One end of a sum of device memory, for observers.
struct DeviceSumEdge {
  std::string_view what;  // Tag::what
  int32_t bucket = 0;     // Tag::bucket
  size_t bytes = 0;
  void* stream = nullptr;  // cudaStream_t of the sum
  bool is_end = false;     // right after the sum, not right before it
};

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  // From now on `device` performs the all-reduces of memory that it holds. They start and are
  // awaited in the order of the device's stream; the host waits only until they are enqueued. Other
  // operations do not accept device memory. Does nothing with one rank.
  virtual void SetDeviceAllReduce(std::unique_ptr<DeviceAllReduce> device) = 0;

  // Returns zeroed device memory whose all-reduces are fastest. Needs SetDeviceAllReduce(). Destroy
  // it before the communicator, and after captured work that uses it. Throws DeviceMemoryError if
  // there is too little memory.
  virtual std::unique_ptr<CommArena> AllocateDeviceArena(size_t bytes) = 0;

  // Sets a function that is called when sums of device memory are enqueued, right before and right
  // after each of them. It may enqueue other work in their stream, also during a capture. It runs
  // on the thread that enqueues the sum, and must stay valid until the last sum. Set it while
  // nothing is in flight, after SetDeviceAllReduce(). An empty function ends that. Does nothing
  // without a device.
  virtual void ObserveDeviceSums(std::function<void(const DeviceSumEdge& edge)> observer) = 0;

  // Replays captured device work that contains all-reduces. Calls `launch`, which enqueues that
  // work, once all ranks have called Replay() with the same tag. Does not wait for the all-reduces;
  // the deadline still applies to them. No other operation may be in flight.
  // (src/backend/backend.h: CapturedWork)
  virtual void Replay(const std::function<void()>& launch, const Tag& tag) = 0;
};

}  // namespace carole::collectives
