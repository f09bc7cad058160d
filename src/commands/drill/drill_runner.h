// Runs the cases of a drill: each is a training of its own, started by mpirun, and a second run if
// the first one has failed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/commands/drill/drill_cases.h"

namespace carole::commands {

struct DrillSetup {
  std::string work_dir;  // absolute path; every host has its own copy, or all share it
  std::string hostfile;  // path; "": all ranks run on this machine
  int ranks = 0;
  int ranks_per_host = 0;    // on the host with the most
  double limit_seconds = 0;  // of a training with a fault; 0: follows from the undisturbed one
};

struct DrillResult {
  DrillCase drill;
  std::string seen;                   // for people
  std::vector<std::string> problems;  // none: passed
  double seconds = 0;
  std::string log;  // the end of the first run's log
};

// A training without a fault.
struct UndisturbedRun {
  std::string digest;        // of its last checkpoint
  double seconds = 0;        // from the start of mpirun to its end
  double limit_seconds = 0;  // a training of as many steps with a fault hangs if it takes longer
};

class DrillRunner {
 public:
  // Throws ConfigError if mpirun is missing.
  explicit DrillRunner(DrillSetup setup);

  // Returns the undisturbed training with this number of steps. It runs at the first call. Throws
  // ConfigError if it fails.
  const UndisturbedRun& RunUndisturbed(int64_t steps);

  // Runs one case and compares what is seen with what is expected. Throws ConfigError if the
  // undisturbed training fails.
  DrillResult Run(const DrillCase& drill);

  // Whether `carole train` has this flag.
  static bool TrainHasFlag(const std::string& flag);

 private:
  struct Training {
    std::string train_dir;
    int64_t steps = 0;
    double limit_seconds = 0;              // then it is ended
    Arguments flags;                       // in addition to those of all trainings
    const Injection* injection = nullptr;  // null: no fault
  };
  struct JobEnd {
    int code = 0;
    bool timed_out = false;
    double seconds = 0;  // from the start of mpirun to its end, or to the limit
    std::string log;
  };
  JobEnd Train(const Training& training) const;
  void CheckFirstRun(const JobEnd& run, DrillResult& result) const;
  void CheckEnd(const JobEnd& run, const std::string& train_dir, DrillResult& result);

  DrillSetup setup_;
  std::string mpirun_;
  std::map<int64_t, UndisturbedRun> undisturbed_;  // by number of steps
};

// Returns the digest of weights, slots and position of the newest checkpoint in the folder, or ""
// if it has none that is intact.
std::string DigestOfRun(const std::string& train_dir);

// Writes a small data set of random images to `folder`, unless it is there.
void WriteDrillData(const std::string& folder, int ranks);

}  // namespace carole::commands
