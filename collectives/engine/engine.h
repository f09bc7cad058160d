// The communicator over any backend: queue, thread, contract, choice of algorithm. A backend adds
// where ranks run, messages, and shared memory.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/communicator.h"

namespace carole::collectives {

// What local/ and mpi/ implement. Calls come from one thread at a time, except StopWaiting().
class CommBackend {
 public:
  virtual ~CommBackend() = default;

  virtual const Topology& topology() const = 0;
  virtual std::span<const std::string> names() const = 0;  // "rank r (host)"
  virtual Transport& transport() = 0;
  virtual NodeGroup& node() = 0;

  // Zeroed memory of so many bytes for each local rank, in the order of local ranks; it lasts as
  // long as the backend. Called by all ranks together. Empty when this host cannot give it.
  virtual std::vector<std::byte*> AllocateShared(size_t bytes, Watch& watch) = 0;

  // Algorithm "mpi". Blocks without a deadline.
  virtual bool HasNativeAllReduce() const { return false; }
  virtual void NativeAllReduce(std::span<float>) {}
  virtual void NativeAllReduce(std::span<double>) {}

  // Makes waits fail soon, so that Abort() can be called. From any thread.
  virtual void StopWaiting() = 0;
  // Ends the job, as far as the backend can.
  virtual void Abort(int exit_code) = 0;

  // Whether all ranks have to end together; if so, together says whether they do.
  virtual bool NeedsCollectiveShutdown() const { return false; }
  virtual void End(bool together) { static_cast<void>(together); }
};

// Throws UsageError when options.all_reduce does not fit.
std::unique_ptr<Communicator> MakeEngine(std::unique_ptr<CommBackend> backend,
                                         const CommunicatorOptions& options);

}  // namespace carole::collectives
