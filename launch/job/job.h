// Runs one training on the machines of a TF_CONFIG job. Every task starts the same program: the
// chief waits for the others and runs mpirun, the others let it in until it tells them the end.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/cluster.h"

namespace carole::launch {

struct JobOptions {
  std::vector<std::string> command;  // of each rank: program and arguments
  std::string work_dir;              // that all machines share: holds the job's key
  std::string train_dir;             // for the note of the job's end (job_end.h); "": none
  std::string ssh_key;               // of the job, mounted on all machines; wins over work_dir
  double start_timeout = 600;        // seconds in which all machines have to be there
  double restart_timeout = 60;       // the same, after one was lost
  int max_restarts = 3;
  int min_hosts = 0;          // go on without lost machines while so many are left; 0: all
  double grace_seconds = 25;  // between SIGTERM's "save and end" and the end
  bool ends_ps = false;       // parameter servers idle and are told the end, too
  std::string network;        // see mpirun.h
  std::string ports;
};

// Whether the chief holds a session with the task until the end, for which it takes a key.
bool IsHeld(const Task& task, const JobOptions& options);

// The chief's part. Returns training's exit code (JobExitCode), 128 + signal when it was asked to
// stop before training began. Throws CommError when machines do not come in time, ConfigError for
// programs and keys that are missing.
//
// SIGTERM, SIGINT or SIGHUP asks the ranks to save (SIGUSR1) and ends them after grace_seconds; the
// other signals go to mpirun as they are. After a loss it starts again, from the last checkpoint,
// max_restarts times.
int RunChief(const Cluster& cluster, const JobOptions& options);

// Every other task's part: serves sshd on the task's port. Returns the exit code that the chief
// tells. Throws CommError when there was no chief for start_timeout seconds, ConfigError when sshd
// cannot run.
int Serve(const Task& me, const JobOptions& options);

}  // namespace carole::launch
