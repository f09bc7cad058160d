// Replaces communicator.cpp in a build without MPI: a process alone works, a job of several
// processes does not.
#include <cstdlib>

#include "collectives/local/communicator.h"
#include "collectives/mpi/communicator.h"
#include "launch/cluster/environment.h"
#include "src/core/error.h"

namespace carole::collectives {

std::unique_ptr<FullCommunicator> MakeMpiCommunicator(const CommunicatorOptions& options) {
  const std::optional<launch::RankPlacement> placement = launch::FindRankPlacement(std::getenv);
  if (placement && placement->size > 1) {
    throw ConfigError("[comm] job: carole was built without MPI: got " +
                      std::to_string(placement->size) +
                      " processes, want 1; install MPI's development package and build again");
  }
  return std::move(MakeLocalCommunicators(1, options).front());
}

std::string MpiVersion() { return "none"; }

}  // namespace carole::collectives
