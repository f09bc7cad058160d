// The requests of schedulers and people to stop: SIGTERM, SIGUSR1, SIGINT.
#pragma once

#include <csignal>
#include <vector>

namespace carole::train {

// Catches them while it lives; one object at a time. A second SIGINT ends the program at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether one has come. Any thread.
  static bool Requested();

 private:
  std::vector<struct sigaction> before_;
};

}  // namespace carole::train
