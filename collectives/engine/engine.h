// The engine implements FullCommunicator over any CommBackend. It adds the queue and its thread,
// the comparison of headers, deadlines, and the choice of algorithms. A backend provides the ranks,
// messages between them, and shared memory. The head of engine.cpp explains how an operation runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/communicator_options.h"
#include "collectives/full_communicator.h"

namespace carole::collectives {

// The part of a communicator that local/ and mpi/ implement. One thread at a time calls it, except
// for StopWaiting().
class CommBackend {
 public:
  virtual ~CommBackend() = default;

  virtual const Topology& topology() const = 0;
  virtual std::span<const std::string> names() const = 0;  // "rank r (host)"
  virtual Transport& transport() = 0;
  virtual NodeGroup& node() = 0;

  // Allocates `bytes` bytes of zeroed memory for each local rank. Returns their addresses in the
  // order of local ranks, or an empty vector if this host has too little shared memory. The memory
  // lives as long as the backend. Collective. Throws CommError if ranks are gone.
  virtual std::vector<std::byte*> AllocateShared(size_t bytes, Watchdog& watchdog) = 0;

  // AllReduceAlgorithm::kMpi. Blocks without a deadline.
  virtual bool HasNativeAllReduce() const { return false; }
  virtual void NativeAllReduce(std::span<float>) {}
  virtual void NativeAllReduce(std::span<double>) {}

  // Makes waits fail soon, so that Abort() can be called. Callable from any thread.
  virtual void StopWaiting() = 0;
  // Ends the whole job with this exit code, as far as the backend can.
  virtual void Abort(int exit_code) = 0;

  // Whether all ranks must shut down together. If so, `collective` tells Shutdown() whether they
  // do. No other call follows Shutdown().
  virtual bool NeedsCollectiveShutdown() const { return false; }
  virtual void Shutdown(bool collective) { static_cast<void>(collective); }
};

// Throws UsageError if options.all_reduce does not fit the hosts.
std::unique_ptr<FullCommunicator> MakeEngine(std::unique_ptr<CommBackend> backend,
                                             const CommunicatorOptions& options);

}  // namespace carole::collectives
