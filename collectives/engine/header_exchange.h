// How all ranks agree on an operation before its data moves, and what they learn of each other on
// the way: where the ranks of other hosts were last, and how far apart the hosts' clocks are.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"

namespace carole::collectives {

class HeaderExchange {
 public:
  // x.topology, transport, node and watch are set; x outlives this. Used by one thread at a time.
  explicit HeaderExchange(Exchange& x);

  // The verdict on the headers of all ranks; the same on every rank. The host's ranks can read
  // `shown` afterwards (NodeGroup).
  HeaderRange Compare(const Header& header, std::span<const std::byte> shown = {});

  // "in forward of step 7", or, of a rank of another host, "last seen in forward of step 7": when
  // its host agreed to an operation. "" when nothing is known.
  std::string WhereIs(int rank) const;

  // Tells the neighbors of a rank of another host (-1: it has come). Who of this host is missing
  // they see themselves.
  void SetWaitingFor(int rank);

  // Seconds from this host's steady clock to that of rank 0's host. Called by all ranks together.
  double MeasureClockOffset();

 private:
  HeaderRange CompareHosts(const HeaderRange& mine);

  Exchange& x_;
  std::vector<Whereabouts> last_seen_;  // of each rank; kept by the first rank of each host
};

}  // namespace carole::collectives
