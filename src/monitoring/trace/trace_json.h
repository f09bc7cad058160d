// Chrome's trace format: a JSON array of events, for ui.perfetto.dev and chrome://tracing.
//   https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
// A rank is a process there. Its steps are one thread: a step holds phases (input, forward, …), and
// these hold kernels; its collectives are another: one holds the wait for ranks that came later.
#pragma once

#include <iosfwd>
#include <string>

#include "src/monitoring/trace/trace_events.h"

namespace carole::monitoring {

struct RankOfTrace {
  int rank = 0;
  int size = 1;
  std::string name;         // "rank 3 (host)"
  double clock_offset = 0;  // seconds from its steady clock to rank 0's
};

// Writes the array to `out`, whose state tells whether that went well.
class TraceJson {
 public:
  // Times count from `zero`, of rank 0's clock.
  TraceJson(std::ostream& out, TraceEvent::Time zero) : out_(out), zero_(zero) { out_ << '['; }

  void AddRank(const RankOfTrace& rank, const TraceEvents& events);
  // Without it the array is not closed, which readers of the format accept.
  void Close();

 private:
  void Add(const std::string& event);
  void AddNames(const RankOfTrace& rank);
  void AddCollective(const RankOfTrace& rank, const TraceEvents& all, const TraceEvent& event);

  std::ostream& out_;
  const TraceEvent::Time zero_;
  bool is_first_ = true;
};

// Bytes per second that a link would carry in a ring: what benchmarks of all-reduce call bus
// bandwidth, and for other operations bytes / seconds.
double BusBandwidth(std::string_view operation, uint64_t bytes, double seconds, int size);

}  // namespace carole::monitoring
