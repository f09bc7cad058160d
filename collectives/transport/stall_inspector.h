// Who keeps everybody waiting. A rank that waits knows only its neighbor in the algorithm, which
// may wait itself; so ranks that have waited for long tell all others whom they wait for, and the
// chain of answers ends at the one that does not answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/transport/transport.h"

namespace carole::collectives {

class StallInspector {
 public:
  // `transport` outlives this. A new call is made `pause_seconds` after the last at the earliest:
  // a rank that never waits never reads its answers.
  StallInspector(Transport& transport, int rank, int size, double pause_seconds);

  // Tells all others that this rank waits in operation number `sequence` for rank `waiting_for`,
  // unless they know, and reads what they tell. To be called again while it waits.
  void Call(uint64_t sequence, int waiting_for);

  // The rank at the end of the chain that begins with `missing`; `missing` itself if the chain is
  // closed: all are alive, so the network between the two is cut.
  int Blame(uint64_t sequence, int missing) const;

 private:
  struct Answer {
    uint64_t sequence = ~uint64_t{0};
    int64_t waiting_for = -1;
  };

  void Send(uint64_t sequence, int waiting_for);

  Transport& transport_;
  const int rank_;
  const std::chrono::duration<double> pause_;
  std::optional<std::chrono::steady_clock::time_point> last_call_;
  Answer mine_;
  std::vector<Answer> answers_;  // of each rank, the last
  std::vector<Answer> arriving_;
  std::vector<Message> sends_;
  std::vector<Message> receives_;  // of each rank, the own one stays empty
};

}  // namespace carole::collectives
