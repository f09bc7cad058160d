#include "src/commands/cli/version.h"

#include <fmt/format.h>

#include "collectives/mpi/communicator.h"
#include "source_hash.h"
#include "src/core/simd.h"

namespace carole::commands {

const char* Version() { return CAROLE_VERSION; }

const char* Build() { return CAROLE_VERSION " of source " CAROLE_SOURCE_HASH; }

const char* BuiltCudaVersion() { return CAROLE_CUDA_VERSION; }

void PrintVersion() {
  fmt::print("carole {}\n", Build());
  fmt::print("  MPI     {}\n", collectives::MpiVersion());
  fmt::print("  oneDNN  {}\n", CAROLE_ONEDNN_VERSION);
  fmt::print("  HDF5    {}\n", CAROLE_HDF5_VERSION);
  fmt::print("  CUDA    {}\n", CAROLE_CUDA_VERSION);
  fmt::print("  vectors x86-64-v{} on this machine\n", SimdLevel());
}

}  // namespace carole::commands
