// What the environment says about the job that this process belongs to.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace carole::collectives {

struct Launch {
  std::string variable;  // that says so
  int num_processes = 1;
};

// nullopt: no launcher started this process, or Slurm did so for one task alone, without PMIx.
// `get` is getenv or a test's stand-in.
std::optional<Launch> FindLaunch(const std::function<const char*(const char*)>& get);

// Throws ConfigError when the launcher started several processes that each see a job of one.
void RequireWholeJob(const Launch& launch, int mpi_size);

}  // namespace carole::collectives
