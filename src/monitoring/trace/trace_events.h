// What one rank notes down for a trace, in bounded memory.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace carole::monitoring {

enum class TraceKind : uint8_t { kStep, kPhase, kKernel, kCollective, kInput };

// Sent as bytes. Names are numbers of TraceEvents::names.
struct TraceEvent {
  using Time = std::chrono::steady_clock::time_point;

  Time start, end;
  int64_t step = 0;  // updates done before it
  TraceKind kind = TraceKind::kStep;
  uint16_t name = 0;
  uint16_t detail = 0;  // a kernel's operation, a collective's
  // Collectives only.
  uint16_t algorithm = 0;
  int32_t bucket = 0;
  uint64_t sequence = 0;  // the same on every rank
  uint64_t bytes = 0;
  Time agreed;  // all ranks had come
  // kInput only: milliseconds of the reading threads in this step, read, parse, decode, augment.
  std::array<float, 4> input_ms{};
};

struct TraceEvents {
  std::vector<std::string> names;
  std::vector<TraceEvent> events;  // of each kind in the order of their ends
};

std::string Serialize(const TraceEvents& events);
// Throws DataError when the bytes are not those of Serialize().
TraceEvents Deserialize(std::string_view bytes);

// The newest events; older ones are dropped when there are more than `capacity`. Thread-safe.
class TraceRing {
 public:
  explicit TraceRing(size_t capacity) : capacity_(capacity) {}

  // The number of a name; "" is 0. At most 65535 names, further ones are "".
  uint16_t NumberOf(std::string_view name);
  void Add(const TraceEvent& event);

  // A copy of the events of steps from `first_step` on.
  TraceEvents Snapshot(int64_t first_step) const;
  int64_t num_dropped() const;

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::map<std::string, uint16_t, std::less<>> numbers_{{"", 0}};
  std::vector<TraceEvent> events_;  // grows up to the capacity, then `next_` goes round
  size_t next_ = 0;
  int64_t num_added_ = 0;
};

}  // namespace carole::monitoring
