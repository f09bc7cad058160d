// A job in which one rank's GPU cannot be connected to the others', while they wait for it:
//   mpirun -np N carole_mpi_nccl
#include "collectives/nccl/loader.h"
#include "src/commands/flags/flags.h"
#include "src/commands/setup/rank_context.h"

int main() {
  carole::commands::MachineFlags flags;
  flags.backend = "reference";
  return carole::commands::RunJob(flags, [](carole::commands::Job& job) {
    if (job.rank() == 1) carole::collectives::UseNccl(job.communicator(), {}, 30);
    job.communicator().Barrier({.what = "first step"});
    return 0;
  });
}
