// Writes Chrome's trace format: a JSON array of events, for ui.perfetto.dev and chrome://tracing.
// The format is described at
//   https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// Each rank is a process of the trace, with two threads. The thread "steps" shows steps, which
// contain phases (input, forward, ...), which contain kernels. The thread "collectives" shows
// collectives, which contain the wait for ranks that arrived later. A device has a thread for
// steps, which contain the wait for reductions, and one for each of its streams of reductions.
#pragma once

#include <iosfwd>
#include <string>

#include "src/monitoring/trace/trace_events.h"

namespace carole::monitoring {

struct TraceRank {
  int rank = 0;
  int size = 1;
  std::string name;         // "rank 3 (host)"
  double clock_offset = 0;  // seconds to add to its steady clock to get rank 0's
};

// Writes the array to `out`. The caller checks the state of `out` for write errors.
class TraceJson {
 public:
  // The file counts times from `zero`, a time of rank 0's clock.
  TraceJson(std::ostream& out, TraceEvent::Time zero) : out_(out), zero_(zero) { out_ << '['; }

  void AddRank(const TraceRank& rank, const TraceEvents& events);
  // Ends the array. Readers of the format also accept an array without an end.
  void Close();

 private:
  void Add(const std::string& event);
  void AddNames(const TraceRank& rank, int num_streams);
  void AddCollective(const TraceRank& rank, const TraceEvents& all, const TraceEvent& event);
  void AddDevice(const TraceRank& rank, const TraceEvents& all, const TraceEvent& event);

  std::ostream& out_;
  const TraceEvent::Time zero_;
  bool is_first_ = true;
};

// Returns the bandwidth of a collective in bytes per second. For an all-reduce, it is the bandwidth
// that each link of a ring would have; benchmarks call this the bus bandwidth. For other operations
// it is bytes / seconds.
double BusBandwidth(collectives::Operation operation, uint64_t bytes, double seconds, int size);

}  // namespace carole::monitoring
