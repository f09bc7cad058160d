// The chief's hold on another task: an ssh session that says when the task's sshd is there, tells
// the task at the end how the job ended, and is gone when either of them is.
#pragma once

#include <memory>
#include <string>

#include "launch/cluster/cluster.h"
#include "launch/job/process.h"

namespace carole::launch {

class WorkerSession {
 public:
  // `ssh` is a path, `ssh_config` has the task's name. Nothing is started before Poll().
  WorkerSession(std::string ssh, std::string ssh_config, Task task);

  // Looks at the session, starts it when there is none (once a second at most), and returns whether
  // it holds.
  bool Poll();

  // Tells the task to end with this exit code; does nothing when the session does not hold.
  void End(int exit_code);
  // Whether the session is over, as it is once the task has been told.
  bool Gone();

  const Task& task() const { return task_; }
  const std::string& problem() const { return problem_; }  // the last failure, as ssh says it

 private:
  const std::string ssh_;
  const std::string ssh_config_;
  const Task task_;
  std::unique_ptr<Process> session_;
  double next_try_ = 0;  // on the steady clock, in seconds
  std::string problem_ = "no answer yet";
};

// The file that a session writes, in the folder that sshd's sessions know as CAROLE_LAUNCH_DIR.
inline constexpr const char* kEndFile = "end";

}  // namespace carole::launch
