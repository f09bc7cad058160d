#include "src/monitoring/trace/trace_events.h"

#include <cstring>
#include <limits>

#include "src/core/error.h"

namespace carole::monitoring {
namespace {

static_assert(std::is_trivially_copyable_v<TraceEvent>);

[[noreturn]] void ThrowDamaged() {
  throw DataError("[watch] trace: events of another rank arrived damaged");
}

void AppendNumber(std::string& out, uint64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Removes `count` bytes from the front of `bytes` and returns them.
std::string_view Take(std::string_view& bytes, uint64_t count) {
  if (bytes.size() < count) ThrowDamaged();
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

uint64_t TakeNumber(std::string_view& bytes) {
  uint64_t number;
  std::memcpy(&number, Take(bytes, sizeof(number)).data(), sizeof(number));
  return number;
}

}  // namespace

std::string Serialize(const TraceEvents& events) {
  std::string bytes;
  AppendNumber(bytes, events.names.size());
  for (const std::string& name : events.names) {
    AppendNumber(bytes, name.size());
    bytes += name;
  }
  bytes.append(reinterpret_cast<const char*>(events.events.data()),
               events.events.size() * sizeof(TraceEvent));
  return bytes;
}

TraceEvents Deserialize(std::string_view bytes) {
  TraceEvents all;
  for (uint64_t left = TakeNumber(bytes); left > 0; --left)
    all.names.emplace_back(Take(bytes, TakeNumber(bytes)));
  if (bytes.size() % sizeof(TraceEvent) != 0) ThrowDamaged();
  all.events.resize(bytes.size() / sizeof(TraceEvent));
  if (!bytes.empty()) std::memcpy(all.events.data(), bytes.data(), bytes.size());
  for (const TraceEvent& event : all.events) {
    for (uint16_t name : {event.name, event.detail, event.algorithm}) {
      if (name >= all.names.size()) ThrowDamaged();
    }
  }
  return all;
}

uint16_t TraceRing::NameId(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  if (numbers_.size() > std::numeric_limits<uint16_t>::max()) return 0;
  const auto number = static_cast<uint16_t>(numbers_.size());
  numbers_.emplace(name, number);
  return number;
}

void TraceRing::Add(const TraceEvent& event) {
  const std::lock_guard lock(mutex_);
  ++num_added_;
  if (events_.size() < capacity_) {
    events_.push_back(event);
  } else {
    events_[next_] = event;
    next_ = (next_ + 1) % capacity_;
  }
}

TraceEvents TraceRing::Snapshot(int64_t first_step) const {
  const std::lock_guard lock(mutex_);
  TraceEvents all;
  all.names.resize(numbers_.size());
  for (const auto& [name, number] : numbers_) all.names[number] = name;
  for (size_t i = 0; i < events_.size(); ++i) {
    const TraceEvent& event = events_[(next_ + i) % events_.size()];
    if (event.step >= first_step) all.events.push_back(event);
  }
  return all;
}

int64_t TraceRing::num_dropped() const {
  const std::lock_guard lock(mutex_);
  return num_added_ - static_cast<int64_t>(events_.size());
}

}  // namespace carole::monitoring
