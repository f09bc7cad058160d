// Runs one training on the hosts of a TF_CONFIG job. Every task starts the same program. The chief
// connects to the other tasks by ssh and runs mpirun. The other tasks serve sshd until the chief
// tells them how the job has ended. The head of chief.cpp explains the protocol.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/cluster/cluster.h"

namespace carole::launch {

// The environment variable in which the chief gives grace_seconds to the ranks.
inline constexpr const char* kGraceVariable = "CAROLE_GRACE_SECONDS";

struct JobOptions {
  std::vector<std::string> command;  // of each rank: program and arguments
  // Returns the command for another number of ranks than the job was planned for; empty: that many
  // ranks cannot train. Without this function, `command` serves any number.
  std::function<std::vector<std::string>(int ranks)> command_for;
  std::string work_dir;         // folder that all hosts share; holds the job's key
  std::string train_dir;        // for the job-end marker (end_markers.h); "": no marker
  std::string ssh_key;          // the job's key, mounted on all hosts; used instead of work_dir
  double start_timeout = 600;   // seconds in which all hosts must connect
  double restart_timeout = 60;  // the same, after a host was lost
  int max_restarts = 3;
  // Continue without missing hosts if at least this many are there. 0: all at the start, and one
  // fewer than before after a loss.
  int min_hosts = 0;
  // Returns the path of the newest checkpoint, for the log; "": there is none. May be empty.
  std::function<std::string()> newest_checkpoint;
  double grace_seconds = 25;      // time that ranks have to save after the chief got SIGTERM
  bool ps_waits_for_end = false;  // parameter servers wait until the chief tells them the end
  std::string network;            // see MpirunOptions
  std::string ports;              // see MpirunOptions
};

// Returns whether the chief keeps an ssh session with this task until the end, which needs the
// job's key.
bool NeedsWorkerSession(const Task& task, const JobOptions& options);

// Does the chief's part of a job and blocks until its end. Returns the exit code of the training as
// JobExitCode() translates it, or 128 + signal if a signal stopped the job before training began.
// Throws CommError if hosts do not connect in time, ConfigError if a program or the key is missing
// or unusable, DiskError if a file cannot be written.
//
// On SIGTERM, SIGINT or SIGHUP it asks the ranks to save (SIGUSR1) and terminates them after
// grace_seconds. It passes other signals to mpirun unchanged. After a loss it restarts the training
// from the last checkpoint, at most max_restarts times.
int RunChief(const Cluster& cluster, const JobOptions& options);

// Does the part of any other task (a worker, or a parameter server that waits): serves sshd on the
// task's port and blocks until the end. Returns the exit code that the chief sends, or 128 +
// signal. Throws CommError if no chief was connected for start_timeout seconds, ConfigError if sshd
// cannot run.
int RunWorker(const Task& me, const JobOptions& options);

}  // namespace carole::launch
