#include "collectives/transport/stall_inspector.h"

namespace carole::collectives {

StallInspector::StallInspector(Transport& transport, int rank, int size, double pause_seconds)
    : transport_(transport),
      rank_(rank),
      pause_(pause_seconds),
      answers_(size),
      arriving_(size),
      receives_(size) {}

void StallInspector::Call(uint64_t sequence, int waiting_for) {
  Send(sequence, waiting_for);
  for (int peer = 0; peer < static_cast<int>(answers_.size()); ++peer) {
    if (peer == rank_) continue;
    // Until nothing more has arrived; the first time there is nothing to be read yet.
    for (bool is_posted = receives_[peer].is_open(); !is_posted || receives_[peer].Done();
         is_posted = true) {
      if (is_posted) answers_[peer] = arriving_[peer];
      receives_[peer] = Receive(transport_, peer, Channel::kRollCall,
                                std::as_writable_bytes(std::span(&arriving_[peer], 1)));
    }
  }
}

void StallInspector::Send(uint64_t sequence, int waiting_for) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_news = mine_.sequence != sequence || mine_.waiting_for != waiting_for;
  if (!is_news || (last_call_ && now - *last_call_ < pause_)) return;
  last_call_ = now;
  sends_.clear();  // gives up what is still on its way, and mine_ with it
  mine_ = {.sequence = sequence, .waiting_for = waiting_for};
  for (int peer = 0; peer < static_cast<int>(answers_.size()); ++peer) {
    if (peer == rank_) continue;
    sends_.push_back(collectives::Send(transport_, peer, Channel::kRollCall,
                                       std::as_bytes(std::span(&mine_, 1))));
  }
}

int StallInspector::Blame(uint64_t sequence, int missing) const {
  int blamed = missing;
  for (size_t hops = 0; hops < answers_.size(); ++hops) {
    if (blamed == rank_) return missing;
    const Answer& answer = answers_[blamed];
    const bool is_rank =
        answer.waiting_for >= 0 && answer.waiting_for < static_cast<int64_t>(answers_.size());
    if (answer.sequence != sequence || !is_rank) return blamed;
    blamed = static_cast<int>(answer.waiting_for);
  }
  return missing;
}

}  // namespace carole::collectives
