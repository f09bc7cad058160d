// Watchdog: enforces the deadline of an operation, reports stalls, and names the ranks to blame.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator_options.h"
#include "collectives/transport/operation.h"

namespace carole::collectives {

class StallInspector;

// The questions and messages of a watchdog to its owner. Every member may be empty.
struct WatchdogHooks {
  int rank = 0;  // this rank
  // Returns how a rank has left the job, or "" if it has not.
  std::function<std::string(int rank)> departure_reason;
  // Returns "in the forward phase of step 7", or "" if unknown.
  std::function<std::string(int rank)> describe_activity;
  // Gets the first missing rank at each check, and -1 once the wait is over.
  std::function<void(int rank)> on_waiting_for;
  // Finds the rank that the missing ranks are waiting for.
  StallInspector* stall_inspector = nullptr;
};

// Used by one thread at a time.
class Watchdog {
 public:
  // names[r] is "rank r (host)".
  Watchdog(const CommunicatorOptions& options, std::span<const std::string> names,
           WatchdogHooks hooks);

  // Starts the clock of a new operation.
  void Begin(const OperationHeader& header);
  // All ranks have come to the operation, and their headers match.
  void SetAllArrived() { all_arrived_ = true; }
  bool all_arrived() const { return all_arrived_; }

  // Call this a few times a second while waiting for the ranks in `missing`, which is not empty.
  // Logs a stall once after options.warn_seconds. Throws CommError if a missing rank has left the
  // job, or if the deadline is over. The deadline counts from Begin(); once all ranks have arrived,
  // it counts from the last progress.
  //
  // Time between two calls counts for at most 2 s. So a suspended process (scontrol suspend,
  // Ctrl-Z) has not waited; the other ranks were most likely suspended too. (The deadlines of MPI's
  // own collectives and of NCCL count all time.)
  void Check(std::span<const int> missing);

  // Call this when a wait that called Check() is over because the data came.
  void EndWait();
  // Restarts the clock: the operation goes on, if slowly, because some rank's data came. Has no
  // effect before all ranks have arrived.
  void NoteProgress();

  std::span<const std::string> names() const { return names_; }
  std::string DescribeOperation() const { return Describe(header_); }

 private:
  std::string DescribeRanks(std::span<const int> ranks) const;
  std::vector<int> FindStalledRanks(std::span<const int> missing) const;

  const CommunicatorOptions options_;
  const std::vector<std::string> names_;
  const WatchdogHooks hooks_;
  OperationHeader header_;
  std::chrono::steady_clock::time_point start_, last_check_;
  bool all_arrived_ = false;
  bool warned_ = false;
};

}  // namespace carole::collectives
