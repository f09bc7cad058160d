// The cases of a drill: which fault happens where, and what must be seen. Nothing here starts a
// process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/commands/cli/commands.h"
#include "src/commands/drill/injection.h"

namespace carole::commands {

// The job that a drill runs again and again.
struct DrillJob {
  int ranks = 0;
  int far_rank = -1;             // a rank that is not on the first host; -1: there is only one host
  std::vector<int> lone_ranks;   // those whose host has no other rank
  int64_t steps = 8;             // of a short training
  bool has_cross_check = false;  // whether train can compare gradients between ranks
};

struct DrillCase {
  std::string fault;
  Injection injection;
  int64_t steps = 0;       // of the training
  Arguments flags;         // of train, in addition to those of all trainings
  std::vector<int> codes;  // exit codes that are right
  Arguments words;         // one line of the log must have all of them
  // Whether the training must end with the weights of the undisturbed training. If its first run
  // fails, the weights of a second run count.
  bool has_equal_weights = true;
  std::string expected;  // for people
};

// Returns after how many steps a short training evaluates and saves. The second save is at the step
// of the fault.
inline int64_t EvaluationInterval(int64_t steps) { return steps / 4; }

// Returns the names of all faults.
std::vector<std::string> FaultNames();

// Returns the cases for these faults and phases. No faults: all of them. No phases: each fault in
// the phases where it matters most; "all": every phase. Cases that the job cannot have are left
// out. Throws UsageError for an unknown name, or if no case is left.
std::vector<DrillCase> MakeDrillCases(const DrillJob& job, const std::vector<std::string>& faults,
                                      const std::vector<std::string>& phases);

}  // namespace carole::commands
