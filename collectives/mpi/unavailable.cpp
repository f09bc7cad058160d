// The twin of communicator.cpp in a build without MPI: one process alone works, a job of several
// does not.
#include <cstdlib>

#include "collectives/local/communicator.h"
#include "collectives/mpi/communicator.h"
#include "launch/cluster/environment.h"
#include "src/core/error.h"

namespace carole::collectives {

std::unique_ptr<Communicator> MakeMpiCommunicator(const CommunicatorOptions& options) {
  const std::optional<launch::Place> place = launch::FindRankPlacement(std::getenv);
  if (place && place->size > 1) {
    throw ConfigError("[comm] job: carole was built without MPI: got " +
                      std::to_string(place->size) +
                      " processes, want 1; install MPI's development package and build again");
  }
  return std::move(MakeLocalCommunicators(1, options).front());
}

std::string MpiVersion() { return "none"; }

}  // namespace carole::collectives
