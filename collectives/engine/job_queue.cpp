#include "collectives/engine/job_queue.h"

#include <chrono>

namespace carole::collectives {

namespace {

constexpr auto kTick = std::chrono::seconds(1);

}  // namespace

struct JobQueue::Job {
  std::function<void()> run;
  std::exception_ptr error;
  bool done = false;

  void Execute() {
    try {
      run();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
  }
};

// Shares the job with the queue, because the caller may destroy this before the job has run.
struct JobQueue::JobPending final : Pending {
  JobPending(JobQueue* queue, std::shared_ptr<Job> job) : queue_(queue), job_(std::move(job)) {}
  void Wait() override { queue_->Await(*job_); }
  bool Done() const override {
    const std::lock_guard lock(queue_->mutex_);
    return job_->done;
  }
  JobQueue* queue_;
  std::shared_ptr<Job> job_;
};

JobQueue::JobQueue(std::function<void()> tick) : tick_(std::move(tick)) {
  thread_ = std::thread([this] { RunJobs(); });
}

JobQueue::~JobQueue() { Stop(); }

void JobQueue::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<Pending> JobQueue::Start(std::function<void()> run) {
  auto job = std::make_shared<Job>();
  job->run = std::move(run);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(job);
  }
  changed_.notify_all();
  return std::make_unique<JobPending>(this, std::move(job));
}

void JobQueue::Run(std::function<void()> run) {
  Lock lock(mutex_);
  if (executing_ || !queue_.empty()) {
    lock.unlock();
    return Start(std::move(run))->Wait();
  }
  executing_ = true;
  lock.unlock();
  Job job{.run = std::move(run)};
  job.Execute();
  lock.lock();
  executing_ = false;
  if (!queue_.empty()) changed_.notify_all();
  if (job.error) std::rethrow_exception(job.error);
}

void JobQueue::RunJobs() {
  Lock lock(mutex_);
  for (;;) {
    const auto may_go = [&] { return !executing_ && (stop_ || !queue_.empty()); };
    while (!changed_.wait_for(lock, kTick, may_go)) tick_();
    if (queue_.empty()) return;
    const std::shared_ptr<Job> job = queue_.front();
    queue_.pop_front();
    executing_ = true;
    lock.unlock();
    job->Execute();
    lock.lock();
    executing_ = false;
    job->done = true;
    changed_.notify_all();
  }
}

void JobQueue::Await(Job& job) {
  Lock lock(mutex_);
  while (!changed_.wait_for(lock, kTick, [&] { return job.done; })) tick_();
  if (job.error) std::rethrow_exception(job.error);
}

bool JobQueue::RunWhenIdle(double seconds, const std::function<void()>& action) {
  Lock lock(mutex_);
  const auto time = std::chrono::duration<double>(seconds);
  if (!changed_.wait_for(lock, time, [&] { return !executing_; })) return false;
  action();
  return true;
}

}  // namespace carole::collectives
