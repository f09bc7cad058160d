// The chief's ssh session with another task. While it is open, both sides are alive. Through it the
// chief sends the exit code of the job. It ends when either side dies.
#pragma once

#include <memory>
#include <string>

#include "launch/cluster/cluster.h"
#include "launch/job/process.h"

namespace carole::launch {

class WorkerSession {
 public:
  // `ssh` is the path of the program; the file `ssh_config` has an entry for the task. Nothing is
  // started before the first Poll().
  WorkerSession(std::string ssh, std::string ssh_config, Task task);

  // Checks the session, starts it again if it has ended (at most once per second), and returns
  // whether it is connected. Does not block.
  bool Poll();

  // Sends the job's exit code, after which the task ends. Does nothing if there is no session.
  void SendExitCode(int exit_code);
  // Returns whether there is no session: never started, or ended, as it does after SendExitCode().
  bool IsClosed();

  const Task& task() const { return task_; }
  const std::string& problem() const { return problem_; }  // the last error message of ssh

 private:
  const std::string ssh_;
  const std::string ssh_config_;
  const Task task_;
  std::unique_ptr<Process> session_;
  double next_try_ = 0;  // in seconds of the steady clock
  std::string problem_ = "no answer yet";
};

// The file in which a session stores the exit code on the task's host. It is in the folder
// $CAROLE_LAUNCH_DIR, a variable that sshd sets for its sessions.
inline constexpr const char* kEndFile = "end";

}  // namespace carole::launch
