// HeaderExchange: compares the header of an operation among all ranks before data moves. The same
// messages also carry what each rank is doing. Measures the offset between the clocks of hosts,
// too.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"

namespace carole::collectives {

// Used by one thread at a time. Functions that wait throw CommError if context.watchdog does.
class HeaderExchange {
 public:
  // Uses topology, transport, node and watchdog of `context`, which must outlive this object.
  explicit HeaderExchange(CollectiveContext& context);

  // Returns the range of the headers of all ranks, which is the same on every rank. Afterwards the
  // ranks of this host can read `inline_data` (NodeGroup::CompareHeaders). Collective.
  HeaderRange CompareHeaders(const OperationHeader& header,
                             std::span<const std::byte> inline_data = {});

  // Returns "in the forward phase of step 7". For a rank of another host, returns "last seen in the
  // forward phase of step 7": what it was doing when its host last compared headers. Returns "" if
  // nothing is known.
  std::string DescribeActivity(int rank) const;

  // Tells the ranks of this host that this rank waits for `rank`, if that is a rank of another host
  // (-1: no longer). Missing ranks of this host are visible to them anyway.
  void SetWaitingFor(int rank);

  // Returns the seconds from this host's steady clock to that of rank 0's host. Collective.
  double MeasureClockOffset();

 private:
  HeaderRange CompareAcrossHosts(const HeaderRange& mine);

  CollectiveContext& context_;
  std::vector<RankActivity> last_seen_;  // of each rank; only the first rank of each host has it
};

}  // namespace carole::collectives
