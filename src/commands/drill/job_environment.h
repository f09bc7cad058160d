// Separates the jobs that a drill starts from the job that runs the drill.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole::commands {

// Whether a variable of the environment describes the position of this process in its job. A
// process with such variables cannot start another mpirun. Variables with settings of the user,
// such as OMPI_MCA_btl_tcp_if_include, do not.
bool DescribesRank(std::string_view variable);

// Removes those variables from the environment, and gives the ranks of new jobs time to report that
// a rank is gone. Gives this process, and those that it starts, all cores back.
void LeaveJob();

struct DrillHost {
  std::string name;
  int ranks = 0;
};

// Counts the ranks of each host. `names[r]` is the host of rank r. The host of rank 0 comes first.
std::vector<DrillHost> CountRanks(const std::vector<std::string>& names);

// Returns the text of a hostfile. The first host, where mpirun itself runs, is listed as localhost.
std::string DrillHostfile(const std::vector<DrillHost>& hosts);

}  // namespace carole::commands
