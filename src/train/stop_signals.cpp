#include "src/train/stop_signals.h"

#include <atomic>

namespace carole::train {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGUSR1, SIGINT};
std::atomic<bool> requested{false};

void OnSignal(int) { requested.store(true, std::memory_order_relaxed); }

}  // namespace

StopSignals::StopSignals() {
  requested = false;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    if (kSignals[i] == SIGINT) action.sa_flags |= SA_RESETHAND;
    sigaction(kSignals[i], &action, &before_[i]);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopSignals::Requested() { return requested.load(std::memory_order_relaxed); }

}  // namespace carole::train
