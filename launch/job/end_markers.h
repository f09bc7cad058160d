// Files that tell other processes how a job has ended.
//
//   ranks-end marker  Rank 0 tells the chief's `carole launch` that the training succeeded. It is
//                     needed because mpirun of Open MPI 5 may exit with 0 although a host was lost.
//   job-end marker    The chief tells an evaluator that the job is over. It is the file .job_end in
//                     train_dir, which may be all that the evaluator shares with the job.
#pragma once

#include <string>

#include "launch/cluster/environment.h"

namespace carole::launch {

// The environment variable in which `carole launch` gives the path of the ranks-end marker to the
// ranks.
inline constexpr const char* kRanksEndVariable = "CAROLE_RANKS_END";

// Creates the ranks-end marker if this process is rank 0 and the variable is set. Call it after
// training succeeded. Logs a warning if the file cannot be written.
void WriteRanksEndMarker(const GetEnvFunction& get);

// Writes the job-end marker, with a different content each time. Creates train_dir if needed. Logs
// a warning if the file cannot be written.
void WriteJobEndMarker(const std::string& train_dir, int exit_code);

// Detects that a job-end marker is written after this object was created. A marker that existed
// before belongs to an earlier job.
class JobEndDetector {
 public:
  explicit JobEndDetector(const std::string& train_dir);
  bool HasEnded() const;

 private:
  std::string path_;
  std::string before_;  // content of the marker at the start; "": there was none
};

}  // namespace carole::launch
