// StallInspector: finds the rank that a stalled collective is really waiting for.
//
// A waiting rank knows only its neighbor in the algorithm, which may be waiting itself. For
// example, all ranks of a ring wait for their left neighbors if one rank is frozen. So ranks that
// have waited for long report to all others whom they wait for. Following these reports leads to
// the rank that has not reported: it is the one that stalls the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/transport/transport.h"

namespace carole::collectives {

// Used by one thread at a time.
class StallInspector {
 public:
  // `transport` must outlive this object. New reports are sent at most every
  // `min_interval_seconds`, because a rank that never waits never reads the reports that others
  // send to it.
  StallInspector(Transport& transport, int rank, int size, double min_interval_seconds);

  // Reports to all other ranks that this rank waits for rank `waiting_for` in operation number
  // `sequence`, unless they know. Also reads the other ranks' reports. Call it repeatedly while
  // waiting. Throws CommError if the network refuses.
  void ReportWait(uint64_t sequence, int waiting_for);

  // Returns the rank at the end of the chain of reports that begins with rank `missing`. Returns
  // `missing` if the chain is a cycle: then all ranks are alive, and the network between this rank
  // and `missing` is cut.
  int FindStalledRank(uint64_t sequence, int missing) const;

 private:
  struct WaitReport {
    uint64_t sequence = ~uint64_t{0};
    int64_t waiting_for = -1;
  };

  void SendReport(uint64_t sequence, int waiting_for);

  Transport& transport_;
  const int rank_;
  const std::chrono::duration<double> min_interval_;
  std::optional<std::chrono::steady_clock::time_point> last_report_;
  WaitReport mine_;
  std::vector<WaitReport> reports_;   // the last report of each rank
  std::vector<WaitReport> incoming_;  // buffers of receives_
  std::vector<Message> sends_;
  std::vector<Message> receives_;  // one for each rank; this rank's own stays empty
};

}  // namespace carole::collectives
