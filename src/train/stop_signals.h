// The requests of schedulers and people to stop: SIGTERM, SIGUSR1, SIGINT.
#pragma once

#include <array>
#include <csignal>

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
  std::array<struct sigaction, 3> before_{};
};

}  // namespace carole::train
