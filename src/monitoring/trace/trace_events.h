// The events that one rank records for a trace, in bounded memory.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/diagnostics.h"

namespace carole::monitoring {

enum class TraceKind : uint8_t { kStep, kPhase, kKernel, kCollective, kInput, kDevice };

// One event. Trivially copyable, as ranks send events as bytes. `name`, `detail` and `algorithm`
// are indexes into TraceEvents::names.
struct TraceEvent {
  using Time = std::chrono::steady_clock::time_point;

  Time start, end;
  int64_t step = 0;  // number of updates before this step
  TraceKind kind = TraceKind::kStep;
  uint16_t name = 0;
  uint16_t detail = 0;  // the operation of a kernel or of a collective
  // Collectives only, except `bucket` and `bytes`, which reductions on a device have as well.
  collectives::Operation operation = collectives::Operation::kBarrier;
  uint16_t algorithm = 0;
  int32_t bucket = 0;
  uint64_t sequence = 0;  // number of the collective; the same on every rank
  uint64_t bytes = 0;
  Time all_arrived;    // when the last rank had joined the collective
  int32_t stream = 0;  // kDevice only: DeviceSpan::stream
  // kInput only: milliseconds that the reading threads spent in this step, all together, to read,
  // parse, decode and augment.
  std::array<float, 4> input_ms{};
};

// Events and their names.
struct TraceEvents {
  std::vector<std::string> names;
  std::vector<TraceEvent> events;  // events of one kind are in the order in which they ended
};

// Converts events to bytes, for ranks of the same program.
std::string Serialize(const TraceEvents& events);
// Converts back. Throws DataError if the bytes do not come from Serialize().
TraceEvents Deserialize(std::string_view bytes);

// A ring buffer that keeps the newest `capacity` events. Thread-safe.
class TraceRing {
 public:
  explicit TraceRing(size_t capacity) : capacity_(capacity) {}

  // Returns the id of a name, and adds the name if it is new. The id of "" is 0. There are at most
  // 65535 other names; any further name gets id 0.
  uint16_t NameId(std::string_view name);
  void Add(const TraceEvent& event);

  // Returns a copy of the events whose step is at least `first_step`.
  TraceEvents Snapshot(int64_t first_step) const;
  int64_t num_dropped() const;

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::map<std::string, uint16_t, std::less<>> numbers_{{"", 0}};
  std::vector<TraceEvent> events_;  // grows to the capacity; from then on next_ is overwritten
  size_t next_ = 0;
  int64_t num_added_ = 0;
};

}  // namespace carole::monitoring
