// Jobs that run one after the other in the order of the calls: on the queue's thread, or, when
// nothing else is under way, on the thread of a call that would only wait for it. So what jobs use
// sees one thread at a time.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/communicator.h"

namespace carole::collectives {

class JobQueue {
 public:
  // tick: called about once a second by threads that wait.
  explicit JobQueue(std::function<void()> tick);
  ~JobQueue();  // Stop()

  // An exception of the job is thrown by Wait(). The Pending may be dropped before the job has run,
  // and must not outlive the queue.
  std::unique_ptr<Pending> Start(std::function<void()> run);

  // Starts and waits.
  void Run(std::function<void()> run);

  // Runs what was started, then ends the thread. Nothing may be started afterwards.
  void Stop();

  // Calls `action` while no job runs; false, without calling it, when one runs for longer.
  bool RunWhenIdle(double seconds, const std::function<void()>& action);

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Job;
  struct JobPending;

  void RunJobs();
  void Await(Job& job);

  const std::function<void()> tick_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool executing_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace carole::collectives
