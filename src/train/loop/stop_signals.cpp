#include "src/train/loop/stop_signals.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace carole::train {
namespace {

std::atomic<bool> requested{false};

void OnSignal(int) { requested.store(true, std::memory_order_relaxed); }

// nohup leaves SIGHUP ignored.
bool IsIgnored(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

}  // namespace

void CatchStopSignals() {
  requested = false;
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGINT, SIGHUP}) {
    if (signal == SIGHUP && IsIgnored(signal)) continue;
    struct sigaction action {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    if (signal == SIGINT) action.sa_flags |= SA_RESETHAND;
    sigaction(signal, &action, nullptr);
  }
  // In `carole train ... 2>&1 | tee LOG`, Ctrl-C also ends tee. Writing the log then raises
  // SIGPIPE, which would kill the run before it has saved.
  std::signal(SIGPIPE, SIG_IGN);
}

bool StopRequested() { return requested.load(std::memory_order_relaxed); }

}  // namespace carole::train
