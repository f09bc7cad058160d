#include "collectives/engine/call_deadline.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <utility>

namespace carole::collectives {

CallDeadline::CallDeadline(double seconds, Expire expire)
    : seconds_(seconds),
      expire_(std::move(expire)),
      thread_([this](const std::stop_token& stop) { Watch(stop); }) {}

CallDeadline::Call::Call(CallDeadline& watch, std::string name, std::string hint)
    : watch_(watch), name_(std::move(name)), hint_(std::move(hint)) {
  const std::lock_guard lock(watch_.mutex_);
  place_ = watch_.calls_.insert(watch_.calls_.end(), this);
}

CallDeadline::Call::~Call() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.calls_.erase(place_);
}

// Counts second by second, so the time in which a process is suspended does not count.
void CallDeadline::Watch(const std::stop_token& stop) {
  std::condition_variable_any never;
  std::unique_lock lock(mutex_);
  while (!never.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; }) &&
         !stop.stop_requested()) {
    for (Call* call : calls_) ++call->seconds_;
    const auto late =
        std::ranges::find_if(calls_, [&](const Call* call) { return call->seconds_ > seconds_; });
    if (late == calls_.end()) continue;
    (*late)->seconds_ = 0;
    const std::string name = (*late)->name_, hint = (*late)->hint_;
    lock.unlock();
    expire_(name, hint);
    lock.lock();
  }
}

}  // namespace carole::collectives
