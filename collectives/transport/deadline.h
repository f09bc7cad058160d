// How long ranks wait for each other, and whom they blame.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/transport/operation.h"

namespace carole::collectives {

class StallInspector;

// What a watch asks and tells. All of it may be empty.
struct WatchHooks {
  int rank = 0;                                   // that watches
  std::function<std::string(int rank)> why_gone;  // how a rank has ended, "" if it has not
  std::function<std::string(int rank)> where;     // "in forward of step 7", "" if not known
  std::function<void(int rank)> waiting_for;      // the first missing rank, -1 once it has come
  StallInspector* stall_inspector = nullptr;      // to find who keeps the missing ones waiting
};

// Watches over one operation's waiting. Used by one thread at a time.
class Watch {
 public:
  // names[r] is "rank r (host)".
  Watch(const CommunicatorOptions& options, std::span<const std::string> names, WatchHooks hooks);

  // A new operation starts now.
  void Begin(const Header& header);
  // All ranks have come to it.
  void SetAgreed() { agreed_ = true; }
  bool agreed() const { return agreed_; }

  // To be called a few times a second while waiting for `missing` ranks: reports a stall once, in
  // the log. Throws CommError when one of them is gone, or when the deadline is over since the
  // operation began or, once all have come to it, since it went on last. Time in which this
  // process did not look does not count: who was suspended (scontrol suspend, Ctrl-Z) has not
  // waited, and the others were most likely suspended too. (MPI's own sums and NCCL's count all.)
  void Check(std::span<const int> missing);

  // The waiting that was checked is over: what was awaited has come.
  void EndCheck();
  // The operation goes on, if slowly: somebody's data have come.
  void Progress();

  std::span<const std::string> names() const { return names_; }
  std::string Doing() const { return Describe(header_); }

 private:
  std::string NamesOf(std::span<const int> ranks) const;
  std::vector<int> Blamed(std::span<const int> missing) const;

  const CommunicatorOptions options_;
  const std::vector<std::string> names_;
  const WatchHooks hooks_;
  Header header_;
  std::chrono::steady_clock::time_point start_, last_look_;
  bool agreed_ = false;
  bool warned_ = false;
};

}  // namespace carole::collectives
