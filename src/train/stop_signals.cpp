#include "src/train/stop_signals.h"

#include <atomic>
#include <csignal>

namespace carole::train {
namespace {

std::atomic<bool> requested{false};

void OnSignal(int) { requested.store(true, std::memory_order_relaxed); }

}  // namespace

void CatchStopSignals() {
  requested = false;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    struct sigaction action {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    if (signal == SIGINT) action.sa_flags |= SA_RESETHAND;
    sigaction(signal, &action, nullptr);
  }
}

bool StopRequested() { return requested.load(std::memory_order_relaxed); }

}  // namespace carole::train
