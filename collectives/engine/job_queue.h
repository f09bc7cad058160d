// JobQueue: runs jobs one at a time, in the order of the calls. Jobs run on the queue's thread. If
// the caller would only wait and nothing else is in flight, the job runs on the caller's thread,
// which saves two thread switches. Either way, what the jobs use sees one thread at a time.
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
  // Threads that wait call `tick` about once a second.
  explicit JobQueue(std::function<void()> tick);
  ~JobQueue();  // calls Stop()

  // Starts a job. The returned Pending throws the job's exception in Wait(). It may be destroyed
  // before the job has run, and must not outlive the queue.
  std::unique_ptr<Pending> Start(std::function<void()> run);

  // Starts a job and waits for it. Throws the job's exception.
  void Run(std::function<void()> run);

  // Runs the jobs that were started, then ends the thread. No job may be started afterwards.
  void Stop();

  // Calls `action` while no job runs. Returns false, without calling it, if a job is still running
  // after `seconds`.
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
