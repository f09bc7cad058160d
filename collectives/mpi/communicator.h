// Ranks as processes started by mpirun or srun.
#pragma once

#include <memory>

#include "collectives/communicator.h"

namespace carole::collectives {

// This process's place in its job. MPI is initialized with it (MPI_THREAD_SERIALIZED) and finalized
// with it, so make it once, on the main thread, and destroy it there. A process that no launcher
// started is alone and MPI is not touched at all. Collective over all ranks.
//
// The destructor waits for the other ranks (with the deadline), unless an error of the communicator
// or an exception in flight brought it about. Then MPI is left as it is, and the process should end
// with its exit code: mpirun ends the others. So an error that only this rank knows is for Abort().
//
// Throws ConfigError when a launcher started several processes but MPI sees one, or when carole was
// built without MPI; CommError when MPI fails.
std::unique_ptr<Communicator> MakeMpiCommunicator(const CommunicatorOptions& options = {});

// "Open MPI v4.1.4, …", or "none" in a build without MPI.
std::string MpiVersion();

}  // namespace carole::collectives
