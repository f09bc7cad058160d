// A job in which one rank cannot load NCCL while the other ranks wait for it:
//   mpirun -np N carole_mpi_nccl
#include "collectives/nccl/loader.h"
#include "src/commands/flags/flags.h"
#include "src/commands/setup/rank_context.h"

int main() {
  carole::commands::MachineConfig flags;
  flags.backend = "reference";
  return carole::commands::RunAsRank(flags, [](carole::commands::RankContext& context) {
    if (context.rank() == 1)
      (void)carole::collectives::ConnectByNccl(context.communicator(), {},
                                               {.deadline_seconds = 30});
    context.communicator().Barrier({.what = "first step"});
    return 0;
  });
}
