// Shows the results of a drill: a table for terminals, and a page for browsers.
#pragma once

#include <string>
#include <vector>

#include "src/commands/drill/drill_runner.h"

namespace carole::commands {

std::string DrillTableHead();
// Returns the lines of one case: one line, and one more for each problem.
std::string DrillTableRow(const DrillResult& result);

// Returns one HTML page that needs no other file: a summary, the table, and the ends of the logs of
// failed cases. `job`: the hosts and ranks, for people.
std::string MakeDrillPage(const std::string& job, const std::vector<DrillResult>& results);

}  // namespace carole::commands
