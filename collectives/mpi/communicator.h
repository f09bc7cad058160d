// Ranks as processes that mpirun or srun started.
#pragma once

#include <memory>

#include "collectives/communicator_options.h"
#include "collectives/full_communicator.h"

namespace carole::collectives {

// Returns this process's communicator. It initializes MPI (MPI_THREAD_SERIALIZED), and its
// destructor finalizes MPI. So make one communicator per process, on the main thread, and destroy
// it there. Collective over all ranks. If no launcher started the process, it is the only rank and
// MPI is not used at all.
//
// The destructor waits for the other ranks, up to the deadline. It does not if the communicator has
// had an error or an exception is in flight: then MPI is not finalized. End the process with its
// exit code, and mpirun ends the others. Report an error that only this rank has by Abort().
//
// Throws ConfigError if a launcher started several processes but MPI sees one, or if several were
// started and carole was built without MPI. Throws CommError if MPI fails.
std::unique_ptr<FullCommunicator> MakeMpiCommunicator(const CommunicatorOptions& options = {});

// Returns the name and version of the MPI library, such as "Open MPI v4.1.4", or "none" in a build
// without MPI.
std::string MpiVersion();

}  // namespace carole::collectives
