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
  int ranks_per_host = 0;      // on the host with the most
  double limit_seconds = 120;  // of a short training; longer ones get more
};

struct DrillResult {
  DrillCase drill;
  std::string seen;                   // for people
  std::vector<std::string> problems;  // none: passed
  double seconds = 0;
  std::string log;  // the end of the first run's log
};

class DrillRunner {
 public:
  explicit DrillRunner(DrillSetup setup);

  // Runs one case and compares what is seen with what is expected. Throws ConfigError if the
  // undisturbed training fails or mpirun is missing.
  DrillResult Run(const DrillCase& drill);

  // Whether `carole train` has this flag.
  static bool TrainHasFlag(const std::string& flag);

 private:
  struct JobEnd {
    int code = 0;
    bool timed_out = false;
    std::string log;
  };
  JobEnd Train(const std::string& train_dir, int64_t steps, const Arguments& flags,
               const Injection* injection) const;
  // Returns the seconds after which a training of this many steps counts as hanging.
  double Limit(int64_t steps) const;
  const std::string& UndisturbedDigest(int64_t steps);
  void CheckFirstRun(const JobEnd& run, DrillResult& result) const;
  void CheckEnd(const JobEnd& run, const std::string& train_dir, DrillResult& result);

  DrillSetup setup_;
  std::string mpirun_;
  std::map<int64_t, std::string> undisturbed_;  // digests by number of steps
};

// Returns the digest of weights, slots and position of the newest checkpoint in the folder, or ""
// if it has none that is intact.
std::string DigestOfRun(const std::string& train_dir);

// Writes a small data set of random images to `folder`, unless it is there.
void WriteDrillData(const std::string& folder, int ranks);

}  // namespace carole::commands
