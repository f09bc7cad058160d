#include "collectives/transport/stall_inspector.h"

namespace carole::collectives {

StallInspector::StallInspector(Transport& transport, int rank, int size,
                               double min_interval_seconds)
    : transport_(transport),
      rank_(rank),
      min_interval_(min_interval_seconds),
      reports_(size),
      incoming_(size),
      receives_(size) {}

void StallInspector::ReportWait(uint64_t sequence, int waiting_for) {
  SendReport(sequence, waiting_for);
  for (int peer = 0; peer < static_cast<int>(reports_.size()); ++peer) {
    if (peer == rank_) continue;
    // Reads reports until no more have arrived. At the first call, no receive is posted yet.
    for (bool is_posted = receives_[peer].is_open(); !is_posted || receives_[peer].Done();
         is_posted = true) {
      if (is_posted) reports_[peer] = incoming_[peer];
      receives_[peer] = Receive(transport_, peer, Channel::kStallReport,
                                std::as_writable_bytes(std::span(&incoming_[peer], 1)));
    }
  }
}

void StallInspector::SendReport(uint64_t sequence, int waiting_for) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_news = mine_.sequence != sequence || mine_.waiting_for != waiting_for;
  if (!is_news || (last_report_ && now - *last_report_ < min_interval_)) return;
  last_report_ = now;
  sends_.clear();  // cancels sends that are still in flight, because they read mine_
  mine_ = {.sequence = sequence, .waiting_for = waiting_for};
  for (int peer = 0; peer < static_cast<int>(reports_.size()); ++peer) {
    if (peer == rank_) continue;
    sends_.push_back(
        Send(transport_, peer, Channel::kStallReport, std::as_bytes(std::span(&mine_, 1))));
  }
}

int StallInspector::FindStalledRank(uint64_t sequence, int missing) const {
  int stalled = missing;
  for (size_t hops = 0; hops < reports_.size(); ++hops) {
    if (stalled == rank_) return missing;
    const WaitReport& report = reports_[stalled];
    const bool is_rank =
        report.waiting_for >= 0 && report.waiting_for < static_cast<int64_t>(reports_.size());
    if (report.sequence != sequence || !is_rank) return stalled;
    stalled = static_cast<int>(report.waiting_for);
  }
  return missing;
}

}  // namespace carole::collectives
