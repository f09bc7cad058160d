// CallDeadline: reports calls into libraries that do not return in time. Nothing can interrupt such
// a call: not MPI's own all-reduce if a rank is gone, and not a call of CUDA if another thread
// holds the driver's lock. So a thread of its own watches the calls. It calls no library itself, so
// it is never blocked.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace carole::collectives {

class CallDeadline {
 public:
  // `expire` gets the name of a call that lasts longer than `seconds`, and what the user can do. It
  // runs on the watching thread, and usually ends the process.
  using Expire = std::function<void(const std::string& name, const std::string& hint)>;
  CallDeadline(double seconds, Expire expire);

  // A call in progress, from construction to destruction, on any thread. It must end before the
  // CallDeadline is destroyed.
  class Call {
   public:
    Call(CallDeadline& watch, std::string name, std::string hint);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class CallDeadline;
    CallDeadline& watch_;
    const std::string name_, hint_;
    double seconds_ = 0;  // counted by the watching thread
    std::list<Call*>::iterator place_;
  };

 private:
  void Watch(const std::stop_token& stop);

  const double seconds_;
  const Expire expire_;
  std::mutex mutex_;
  std::list<Call*> calls_;
  std::jthread thread_;
};

}  // namespace carole::collectives
